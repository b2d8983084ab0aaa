"""A bias that the norm behind it takes away again, or could hold itself."""

from dataclasses import replace

from slipstream.infer.lint.case import Case, Rule, Seen, case_of, equal_layers


def _find(seen: Seen) -> list[Case]:
    ops = seen.trace.ops
    consumers = seen.trace.consumers()
    found = []
    for index, op in enumerate(ops):
        if op.kind != "norm" or not op.sources:
            continue
        source = op.sources[0]
        layer = ops[source.index].layer
        if layer is None or not layer.has_bias or source.numel != ops[source.index].numel:
            continue
        if layer.kind == "linear" and op.dims != 2:
            continue  # the norm's channels may be another dimension than the bias has
        if consumers[source.index] == [index]:
            found.append(ops[source.index])
    return [
        case_of(layer, group, {"without bias": replace(layer, has_bias=False)})
        for layer, group in equal_layers(found).items()
    ]


RULE = Rule(
    "bias-before-norm",
    "Layers have a bias, and the norm behind them takes the mean away, the bias with it.",
    "no bias before a batch or instance norm",
    "Give these layers bias=False. Checkpoints then lack it.",
    _find,
)
