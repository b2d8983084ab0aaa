"""A recipe as plain PyTorch: a program text that needs torch and nothing else."""

import inspect
import math
from collections.abc import Callable
from typing import Any

from slipstream.train import average, layout, parts, ways
from slipstream.train.choices import Choices

_HEAD = '"""A training step that Slipstream has found. It needs torch and nothing else."""\n'
_PARAMETERS = 'one for group in optimizer.param_groups for one in group["params"]'
_MAKE = '''
def make_step(model, optimizer, loss_fn):
    """Give `step(batch)`, which trains once and gives the loss. Model and optimizer change."""
'''


def code_of(choices: Choices, device: str) -> str:
    """Text of a module with `make_step(model, optimizer, loss_fn)`. `device` is a type: "cuda"."""
    copies = choices.ema is not None or choices.channels_last or choices.micro_batch is not None
    imports = ["import copy"] if copies else []
    imports += ["from typing import Any"] if _helpers(choices) else []
    text = [_HEAD, "\n".join([*imports, *([""] if imports else []), "import torch", ""])]
    text += ["\n" + inspect.getsource(helper) for helper in _helpers(choices)]
    body = _indented(_body(choices, device))
    made = [*_preparation(choices, device), "", "def step(batch):", *body, ""]
    made += ["step.average = average"] if choices.ema is not None else []
    text.append(_MAKE + "\n".join(_indented([*made, "return step"])))
    return "\n".join(text).replace("    \n", "\n") + "\n"


def _helpers(choices: Choices) -> list[Callable[..., Any]]:
    found: list[Callable[..., Any]] = []
    if choices.channels_last or choices.update is not None:
        found.append(layout.lay_like_parameters)
    if choices.channels_last:
        found += [layout.lay_channels_last, layout.with_channels_last]
    if choices.update is not None:
        found.append(ways.update_by)
    if choices.micro_batch is not None:
        found += [parts.size_of, parts.cut]
    if choices.ema is not None:
        found.append(average.copy_buffers)
    return found


def _preparation(choices: Choices, device: str) -> list[str]:
    lines = []
    if choices.cudnn_benchmark:
        lines.append("torch.backends.cudnn.benchmark = True")
    if choices.precision == "tf32":
        lines.append("torch.backends.cuda.matmul.allow_tf32 = True")
        lines.append("torch.backends.cudnn.allow_tf32 = True")
    if choices.channels_last:
        lines.append("lay_channels_last(model, optimizer)")
    elif choices.update is not None:
        lines.append("lay_like_parameters(optimizer)")
    if choices.update is not None:
        lines.append(f'update_by(optimizer, "{choices.update}")')
    if choices.compile:
        mode = f', mode="{choices.compile}"' if isinstance(choices.compile, str) else ""
        lines.append(f"called = torch.compile(model{mode})")
    if choices.precision == "fp16":
        lines.append(f'scaler = torch.amp.GradScaler("{device}")')
    if choices.ema is not None:
        lines += ["average = copy.deepcopy(model).requires_grad_(False)", "average.eval()"]
    return lines


def _body(choices: Choices, device: str) -> list[str]:
    lines = ["batch = with_channels_last(batch)"] if choices.channels_last else []
    lines.append(f"optimizer.zero_grad(set_to_none={choices.set_to_none})")
    if not choices.set_to_none:
        lines += [
            f"for parameter in ({_PARAMETERS}):",
            "    if not parameter.requires_grad:  # momentum would go on with its zeros",
            "        parameter.grad = None",
        ]
    computed = _computed(choices, device)
    if choices.own_kernels:
        computed = [
            "onednn = torch.backends.mkldnn.enabled",
            "torch._C._set_mkldnn_enabled(False)  # set_flags changes other flags as well",
            "try:",
            *_indented(computed),
            "finally:",
            "    torch._C._set_mkldnn_enabled(onednn)",
        ]
    lines += computed
    lines += _update(choices)
    return [*lines, "return loss.detach()" if choices.micro_batch is None else "return total"]


def _computed(choices: Choices, device: str) -> list[str]:
    """Loss and gradients."""
    if choices.micro_batch is None:
        return [*_loss(choices, device, "batch"), _backward(choices)]
    return [
        "size, total = size_of(batch), 0.0",
        f"for start in range(0, size, {choices.micro_batch}):",
        f"    end = min(start + {choices.micro_batch}, size)",
        "    part = cut(batch, start, end, size)",
        *_indented(_loss(choices, device, "part")),
        "    loss = loss * ((end - start) / size)",
        f"    {_backward(choices)}",
        "    total = total + loss.detach()",
    ]


def _loss(choices: Choices, device: str, batch: str) -> list[str]:
    call = f"loss_fn({'called' if choices.compile else 'model'}, {batch})"
    if choices.autocast is None:
        return [f"loss = {call}"]
    return [
        f'with torch.autocast("{device}", torch.{choices.autocast}):',
        f"    loss = {call}",
        "loss = loss.float()",
    ]


def _backward(choices: Choices) -> str:
    return "scaler.scale(loss).backward()" if choices.precision == "fp16" else "loss.backward()"


def _update(choices: Choices) -> list[str]:
    is_scaled = choices.precision == "fp16"
    lines = []
    if choices.clip_norm is not None:
        lines += ["scaler.unscale_(optimizer)"] if is_scaled else []
        lines.append(f"parameters = [{_PARAMETERS}]")
        lines.append(f"torch.nn.utils.clip_grad_norm_(parameters, {_number(choices.clip_norm)})")
    lines += ["scaler.step(optimizer)", "scaler.update()"] if is_scaled else ["optimizer.step()"]
    if choices.ema is not None:
        lines += [
            "with torch.no_grad():",
            "    for one, other in zip(average.parameters(), model.parameters()):",
            "        if one.is_floating_point() or one.is_complex():",
            f"            one.lerp_(other, 1 - {choices.ema})",
            "        else:",
            "            one.copy_(other)",
            "    copy_buffers(average, model)",
        ]
    return lines


def _number(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
