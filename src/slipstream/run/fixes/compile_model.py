"""`compile`: torch.compile makes one program of a model's forward and backward pass.

In place (`module.compile()`), at the first call in which a model learns, so that checkpoints,
isinstance and attributes stay as they are. Evaluation runs as written. What cannot be compiled runs
as written, too: torch falls back by itself, and a first call that fails all the same is made again.
"""

import importlib.util
import os
import shutil
import sysconfig
import weakref
from pathlib import Path
from typing import Any

import torch

from slipstream.run.fix import Fix, Situation, Undo
from slipstream.run.outermost import Outermost, Tries

NAME = "compile"
_COMPILERS = ("g++", "clang++", "c++")


def applies(situation: Situation) -> tuple[bool, str]:
    """For models that learn and are not compiled yet, where there are the tools for it."""
    models = [facts for facts in situation.capture.model.get("models", ()) if facts["trainable"]]
    learning = [facts for facts in models if facts.get("with_gradient")] or models
    if not learning:
        return False, "no model that learns"
    if situation.capture.settings.get("compilations") or any(f["compiled"] for f in models):
        return False, "the script compiles by itself"
    if any(facts["is_distributed"] for facts in models):
        return False, "the model talks to other processes"
    missing = _missing_tool(on_device=situation.on_device)
    if missing is not None:
        return False, f"there is no {missing} here"
    return True, f"{learning[0]['class']} runs operation by operation"


def _missing_tool(*, on_device: bool) -> str | None:
    if on_device and importlib.util.find_spec("triton") is None:
        return "Triton"
    wanted = os.environ.get("CXX")
    if not any(shutil.which(name) for name in ((wanted,) if wanted else _COMPILERS)):
        return "C++ compiler"
    if not on_device and not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "Python.h"
    return None


def apply(situation: Situation) -> Undo:
    """To models that the script calls."""
    import torch._dynamo

    compiled = _Compiled(situation)
    outermost = Outermost(compiled.around)
    outermost.start()
    settings = torch._dynamo.config
    before = settings.suppress_errors
    settings.suppress_errors = True

    def undo() -> None:
        outermost.undo()
        settings.suppress_errors = before
        compiled.put_back()

    return undo


class _Compiled:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._tries = Tries(situation, NAME)
        # Whether it was compiled by this.
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    def around(self, module: Any, call: Any, args: Any, kwargs: Any) -> Any:
        """A call by the script."""
        known = self._known.get(module)
        learns = module.training and torch.is_grad_enabled()
        if known is None and learns:
            known = self._known[module] = self._compile(module)
        if not known:
            return call(*args, **kwargs)

        def plain() -> Any:
            compiled, module._compiled_call_impl = module._compiled_call_impl, None
            try:
                return call(*args, **kwargs)
            finally:
                module._compiled_call_impl = compiled

        if not learns:
            return plain()
        return self._tries.call(module, lambda: call(*args, **kwargs), plain, (args, kwargs))

    def put_back(self) -> None:
        """All of them, as they were."""
        for module, is_ours in self._known.items():
            if is_ours:
                module._compiled_call_impl = None
        self._known.clear()

    def _compile(self, module: Any) -> bool:
        parts = list(module.modules())
        if any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in parts):
            return False
        try:
            module.compile()
        except Exception as error:
            self._situation.give_up(NAME, error)
            return False
        self._situation.note(NAME, type(module).__name__)
        return True


FIX = Fix(NAME, "N", "models are compiled", ("launch-bound",), applies, apply)
