"""Random words as the numbers that transforms need, for all pictures of a batch at once."""

import numpy as np
import numpy.typing as npt

from slipstream.augment.steps import Words

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WORD = 2.0**-32
_GAMMA_TRIES = 16
# Each try takes a normal (two words) and a uniform; one more word is for exponents below 1.
_GAMMA_WORDS = 3 * _GAMMA_TRIES + 1
BETA_BLOCKS = -(-2 * _GAMMA_WORDS // 4)


def unit(words: Words) -> Floats:
    """In [0, 1)."""
    return words.astype(np.float64) * _WORD


def uniform(words: Words, low: float, high: float) -> Floats:
    """In [low, high)."""
    return low + (high - low) * unit(words)


def one_of(words: Words, count: int | Ints) -> Ints:
    """Whole numbers from 0 to `count` - 1, all alike."""
    counts = np.asarray(count, dtype=np.uint64)
    return ((words.astype(np.uint64) * counts) >> np.uint64(32)).astype(np.int64)


def beta(words: Words, alpha: float) -> Floats:
    """Of the distribution Beta(alpha, alpha). `words` are [N, 4 * BETA_BLOCKS]."""
    first = _log_gamma(words[:, :_GAMMA_WORDS], alpha)
    second = _log_gamma(words[:, _GAMMA_WORDS : 2 * _GAMMA_WORDS], alpha)
    return 1.0 / (1.0 + np.exp(np.clip(second - first, -700.0, 700.0)))


def _log_gamma(words: Words, alpha: float) -> Floats:
    """Logarithms of Gamma(alpha, 1) by Marsaglia and Tsang's method: the first of the tries that
    is accepted. Each is with more than 95 %; a gap of all sixteen is left to nobody's lifetime.
    """
    # In (0, 1): logarithms of them are finite.
    numbers = unit(words) + _WORD / 2
    boost = np.log(numbers[:, -1]) / alpha if alpha < 1 else 0.0
    shape = alpha + 1 if alpha < 1 else alpha
    tries = numbers[:, : 3 * _GAMMA_TRIES].reshape(len(words), _GAMMA_TRIES, 3)
    normal = np.sqrt(-2 * np.log(tries[..., 0])) * np.cos(2 * np.pi * tries[..., 1])
    d = shape - 1 / 3
    cube = (1 + normal / np.sqrt(9 * d)) ** 3
    log_cube = np.log(np.maximum(cube, 1e-300))
    accepted = (cube > 0) & (np.log(tries[..., 2]) < 0.5 * normal**2 + d - d * cube + d * log_cube)
    chosen = accepted.argmax(axis=1)
    return np.asarray(np.log(d) + log_cube[np.arange(len(words)), chosen] + boost)
