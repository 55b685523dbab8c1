"""Which stage of a model makes and takes which tensor: what turns a wrong tensor into a wrong stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

PARAM = "param."
"""What names of parameters start with, among gradients and in what an optimizer step gives."""

MODEL = "model"
"""The stage of what no other has to do with."""

OPTIMIZER = "optimizer"
"""The stage of what an optimizer step leaves."""


@dataclass(frozen=True)
class Stage:
    """A part of a model between recorded tensors.

    Attributes
    ----------
    name
        What reports call it.
    makes
        Tensors that its forward makes.
    takes
        Tensors that it starts from: their gradients are what its backward makes.
    params
        Its parameters, by full name; one that ends in a dot stands for all names that start so.
    """

    name: str
    makes: tuple[str, ...]
    takes: tuple[str, ...] = ()
    params: tuple[str, ...] = ()

    def owns(self, param: str) -> bool:
        """Whether a parameter is one of its own."""
        return any(param == own or (own.endswith(".") and param.startswith(own)) for own in self.params)


def in_order(names: Sequence[str], inputs: Sequence[str] = ()) -> list[Stage]:
    """Take each tensor for a stage that starts from the tensor before and owns parameters below its name.

    Parameters
    ----------
    names
        What a forward pass made, in its order.
    inputs
        What the first stage starts from.
    """
    stages = []
    before = tuple(inputs)
    for name in names:
        stages.append(Stage(name, (name,), before, (f"{name}.",)))
        before = (name,)
    return stages


def recorded(stages: Iterable[Stage], names: Collection[str]) -> list[Stage]:
    """Join stages whose results aren't among ``names`` to the next one whose are."""
    joined: list[Stage] = []
    open_: list[Stage] = []
    for stage in stages:
        open_.append(stage)
        if any(name in names for name in stage.makes):
            joined.append(_joined(open_))
            open_ = []
    if open_:
        joined.append(_joined(open_))
    return joined


def forward_order(stages: Sequence[Stage], names: Iterable[str]) -> list[tuple[str, str]]:
    """Order results of a forward pass as stages make them.

    Returns
    -------
    list of (tensor, stage)
        Names that no stage makes come last, of the stage ``model``.
    """
    left = dict.fromkeys(names)
    order = []
    for stage in stages:
        order += [(name, stage.name) for name in stage.makes if left.pop(name, 0) is None]
    return order + [(name, MODEL) for name in left]


def backward_order(stages: Sequence[Stage], names: Iterable[str]) -> list[tuple[str, str]]:
    """Order gradients as stages' backwards make them: parameters' first, then those of what the stage takes.

    What several stages take is done when the first of them is.

    Parameters
    ----------
    stages
        In forward order.
    names
        Of inputs, intermediate tensors, and parameters after ``param.``.

    Returns
    -------
    list of (tensor, stage)
        Names that no stage has to do with come last, of the stage ``model``.
    """
    left = dict.fromkeys(names)
    taken: set[str] = set()
    order: list[tuple[str, str]] = []
    for stage in stages:
        mine = [name for name in left if name.startswith(PARAM) and stage.owns(name.removeprefix(PARAM))]
        mine += [name for name in stage.takes if name in left and name not in taken]
        taken.update(mine)
        order = [(name, stage.name) for name in mine] + order
    return order + [(name, MODEL) for name in left if name not in taken]


def _joined(stages: Sequence[Stage]) -> Stage:
    if len(stages) == 1:
        return stages[0]
    makes = tuple(name for stage in stages for name in stage.makes)
    return Stage(
        f"{stages[0].name} to {stages[-1].name}",
        makes,
        tuple(name for stage in stages for name in stage.takes if name not in makes),
        tuple(name for stage in stages for name in stage.params),
    )


def mamba2_stages(config: Mapping[str, Any]) -> list[Stage]:
    """Tell the stages of a mixer, or with ``n_layer`` of a forecaster (docs/mamba2.md).

    Parameters
    ----------
    config
        That of a `Case`.
    """
    d_inner = config.get("expand", 2) * config["d_model"]
    mlp = (config.get("d_ssm") or d_inner) < d_inner
    if "n_layer" not in config:
        return [*mixer_stages("", ("u",), ("out",), mlp=mlp), _loss("out_proj")]
    stages = [Stage("encoder", ("encoder",), ("x",), ("encoder.",))]
    residual = "encoder"
    for i in range(config["n_layer"]):
        layer = f"layers.{i}"
        norm = f"{layer}.norm"
        stages.append(Stage(norm, (norm,), (residual,), (f"{norm}.",)))
        stages += mixer_stages(f"{layer}.mixer.", (norm,), states=f"{i}.", mlp=mlp)
        stages.append(Stage(f"{layer} (sum)", (layer,), (f"{layer}.mixer.out_proj", residual)))
        residual = layer
    stages.append(Stage("norm_f", ("norm_f",), (residual,), ("norm_f.",)))
    stages.append(Stage("head", ("head", "out"), ("norm_f",), ("head.",)))
    return [*stages, _loss("head")]


def mixer_stages(
    prefix: str,
    source: tuple[str, ...],
    result: tuple[str, ...] = (),
    *,
    states: str = "",
    mlp: bool = False,
) -> list[Stage]:
    """Tell the stages of one mixer.

    Parameters
    ----------
    prefix
        What its tensors' and parameters' names start with.
    source
        What the input projection takes.
    result
        Further names of what the output projection makes.
    states
        What comes before the names of its states.
    mlp
        Whether there is a gated MLP beside the state space model.
    """
    at = prefix.__add__
    init, final = f"init.{states}", f"final.{states}"
    columns = ["in_proj.mlp"] * mlp + ["in_proj.z", "in_proj.xBC", "in_proj.dt"]
    of_mlp = [Stage(at("mlp"), (at("mlp"),), (at("in_proj.mlp"),))] if mlp else []
    joined = (at("norm"), at("mlp")) if mlp else (at("norm"),)
    return [
        Stage(at("in_proj"), tuple(map(at, columns)), source, (at("in_proj."),)),
        Stage(
            at("conv"),
            (at("conv"), f"{final}conv_state"),
            (at("in_proj.xBC"), f"{init}conv_state"),
            (at("conv1d."),),
        ),
        Stage(at("dt"), (at("dt"),), (at("in_proj.dt"),), (at("dt_bias"),)),
        Stage(
            at("scan"),
            (at("scan"), f"{final}ssm_state"),
            (at("conv"), at("dt"), f"{init}ssm_state"),
            (at("A_log"), at("D")),
        ),
        Stage(at("norm"), (at("norm"),), (at("scan"), at("in_proj.z")), (at("norm."),)),
        *of_mlp,
        Stage(at("out_proj"), (at("out_proj"), *result), joined, (at("out_proj."),)),
    ]


def _loss(prediction: str) -> Stage:
    return Stage("loss", ("loss",), (prediction,))
