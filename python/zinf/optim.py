# SPDX-License-Identifier: Apache-2.0
"""Optimizers whose state lies in zinf: AdamW, Adam, SGD, Adagrad and Lion.

They are torch.optim.Optimizer: schedulers work, and learning rate, weight decay, betas and eps are
read from `param_groups` at each step. zinf computes the update; docs/ARITHMETIC.md defines it, and
it equals torch's within float error. The state belongs to the job: state_dict() has no tensors,
unless they are asked for. load_state_dict() takes those of torch's optimizers.

An optimizer trains after zinf.prepare(model, optimizer). foreach, fused and capturable choose how
torch computes, and have no effect here. maximize, amsgrad and differentiable would change the
result, and are refused.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable

import torch

from .errors import InvalidArgument, ZinfError
from .module import moments
from .module.parameter import Guarded
from .session import StepOptions

if TYPE_CHECKING:
    from .module.engine import Engine

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Lion", "ZinfOptimizer", "step_options"]

_REFUSED = ("maximize", "amsgrad", "differentiable")


class ZinfOptimizer(torch.optim.Optimizer):
    """What the optimizers of zinf have in common. `kind` is the setting `optimizer`."""

    kind = ""
    _zinf_engine: Engine | None = None
    _has_stepped = False
    _has_warned = False  # of a loop without zero_grad()

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        defaults = {name: _plain(value) for name, value in defaults.items()}
        super().__init__(params, defaults)
        for number, group in enumerate(self.param_groups):
            check_group(self.kind, group, number)

    @property
    def engine(self) -> Engine | None:
        """The engine, after zinf.prepare()."""
        return self._zinf_engine

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Refuse torch's GradScaler, which asks for this name and finds no gradients to unscale."""
        if self._zinf_engine is None:
            return False
        raise InvalidArgument(
            "GradScaler.step() of an optimizer in zinf: the gradients lie in zinf, where a "
            "GradScaler cannot unscale them. Leave it out and train in float32 or bfloat16"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group before zinf.prepare(). Later the groups are fixed."""
        if self._zinf_engine is not None:
            raise InvalidArgument("add_param_group() after zinf.prepare(): add groups before it")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step. Returns before it is committed; without gradients nothing happens."""
        engine = self._zinf_engine
        if engine is None:
            raise ZinfError(
                f"zinf.optim.{type(self).__name__} has no model: call model, optimizer = "
                "zinf.prepare(model, optimizer) before the first step"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if engine.has_begun:
            self._expect_zero_grad(engine)
        engine.step(self.param_groups)
        return loss

    def _expect_zero_grad(self, engine: Engine) -> None:
        """Warn once in a loop without zero_grad(), where torch would sum up all gradients."""
        if self._has_stepped and not engine.was_zeroed and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "optimizer.step() was called twice without optimizer.zero_grad() in between: torch "
                "adds the gradients of all former steps in such a loop, zinf begins each step anew",
                stacklevel=5,  # the script, behind two wrappers of torch
            )
        self._has_stepped, engine.was_zeroed = True, False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of a step that has begun. Collective if one has."""
        if self._zinf_engine is not None:
            self._zinf_engine.discard()
        else:
            super().zero_grad(set_to_none)

    def state_dict(self, tensors: bool = False) -> dict[str, Any]:
        """Return the groups. The state itself stays in zinf: its commits and snapshots keep it.

        tensors: return the state as well, in torch's layout, as float32 tensors of this process:
        torch's optimizer of the same parameters loads it. One rank alone may ask.
        """
        state = super().state_dict()
        state["state"] = {}
        if tensors:
            state["state"] = moments.read(self._engine_for("state_dict()"), self.kind, self._all())
        return state

    def _all(self) -> list[Any]:
        return [item for group in self.param_groups for item in group["params"]]

    def _engine_for(self, call: str) -> Engine:
        if self._zinf_engine is None:
            raise ZinfError(f"{call} with tensors of an optimizer before zinf.prepare()")
        return self._zinf_engine

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take hyperparameters of groups, and state that torch's optimizer saved.

        Dicts and list of param_groups stay the same objects. State with tensors replaces the state
        of all parameters, and is committed: then the call is collective, all ranks give the same,
        and the values of rank 0 count. State without tensors leaves zinf's as it is.
        """
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"the loaded state has {len(groups)} parameter groups, the optimizer "
                f"{len(self.param_groups)}"
            )
        for number, (saved, group) in enumerate(zip(groups, self.param_groups)):
            if len(saved["params"]) != len(group["params"]):
                raise ValueError(
                    f"group {number} of the loaded state has {len(saved['params'])} parameters, "
                    f"the optimizer's {len(group['params'])}"
                )
        for number, saved in enumerate(groups):
            check_group(self.kind, saved, number)
        if state_dict.get("state"):
            self._load_tensors(groups, state_dict["state"])
        for saved, group in zip(groups, self.param_groups):
            group.update({name: value for name, value in saved.items() if name != "params"})

    def _load_tensors(self, groups: list[dict[str, Any]], state: dict[Any, Any]) -> None:
        engine = self._engine_for("load_state_dict()")
        keys = [key for group in groups for key in group["params"]]
        if self.kind == "sgd" and not any(
            (state.get(key) or {}).get("momentum_buffer") is not None for key in keys
        ):
            return  # torch keeps none without momentum
        pairs = [(item, state.get(key)) for key, item in zip(keys, self._all())]
        betas = moments.betas_of(self.kind, groups[0], self.param_groups[0])
        moments.load(engine, self.kind, pairs, betas)


class AdamW(ZinfOptimizer):
    """torch.optim.AdamW."""

    kind = "adamw"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **flags: Any,
    ) -> None:
        values = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**values, **_flags(flags)})


class Adam(ZinfOptimizer):
    """torch.optim.Adam: weight decay is added to the gradient."""

    kind = "adam"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **flags: Any,
    ) -> None:
        values = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**values, **_flags(flags)})


class SGD(ZinfOptimizer):
    """torch.optim.SGD."""

    kind = "sgd"

    def __init__(  # noqa: PLR0917 - torch's order
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **flags: Any,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        values = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, {**values, **_flags(flags)})


class Adagrad(ZinfOptimizer):
    """torch.optim.Adagrad."""

    kind = "adagrad"

    def __init__(  # noqa: PLR0917 - torch's order
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **flags: Any,
    ) -> None:
        values = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
        }
        super().__init__(params, {**values, **_flags(flags)})


class Lion(ZinfOptimizer):
    """Lion (arXiv:2302.06675). A tenth of AdamW's lr is usual, with ten times its weight decay."""

    kind = "lion"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **flags: Any,
    ) -> None:
        values = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, {**values, **_flags(flags)})


KINDS: dict[str, type[ZinfOptimizer]] = {
    kind.kind: kind for kind in (AdamW, Adam, SGD, Adagrad, Lion)
}
_KNOWN_FLAGS = frozenset((*_REFUSED, "foreach", "fused", "capturable", "decoupled_weight_decay"))


def _flags(flags: dict[str, Any]) -> dict[str, Any]:
    for name in flags:
        if name not in _KNOWN_FLAGS:
            raise TypeError(f"unexpected argument '{name}' of an optimizer")
    return {**{"maximize": False}, **flags}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


# ---- hyperparameters ----


def check_group(kind: str, group: dict[str, Any], number: int) -> None:
    """Refuse what zinf does not compute. Raises InvalidArgument."""
    for name in _REFUSED:
        if group.get(name):
            raise InvalidArgument(
                f"{name}=True of parameter group {number}: zinf does not support it"
            )
    if group.get("initial_accumulator_value"):
        raise InvalidArgument(
            f"initial_accumulator_value is {group['initial_accumulator_value']} in parameter group "
            f"{number}: zinf's Adagrad begins with 0"
        )
    if kind == "adam" and group.get("decoupled_weight_decay"):
        raise InvalidArgument("Adam with decoupled_weight_decay is AdamW: use zinf.optim.AdamW")


def _betas(kind: str, group: dict[str, Any]) -> tuple[float, float, float]:
    """Return what zinf calls beta1, beta2 and eps."""
    if kind == "sgd":
        return float(group.get("momentum", 0)), float(group.get("dampening", 0)), 0.0
    if kind == "adagrad":
        return 0.0, 0.0, float(group.get("eps", 1e-10))
    beta1, beta2 = group["betas"]
    return float(beta1), float(beta2), float(group.get("eps", 0.0))


def _same(groups: list[dict[str, Any]], name: str) -> Any:
    values = {_plain(group.get(name, 0)) for group in groups}
    if len(values) > 1:
        raise InvalidArgument(
            f"{name} differs between parameter groups ({', '.join(map(str, sorted(values)))}): "
            "zinf has one for all"
        )
    return values.pop()


def step_options(kind: str, groups: list[dict[str, Any]]) -> StepOptions:
    """Return the hyperparameters of a step, as the groups have them now."""
    for number, group in enumerate(groups):
        check_group(kind, group, number)
    rates = [(float(g["lr"]), float(g.get("weight_decay", 0.0))) for g in groups]
    betas = [_betas(kind, group) for group in groups]
    options = StepOptions(
        lr=rates[0][0],
        weight_decay=rates[0][1],
        beta1=betas[0][0],
        beta2=betas[0][1],
        eps=betas[0][2],
    )
    if kind == "sgd":
        options.nesterov = bool(_same(groups, "nesterov"))
    if kind == "adagrad":
        options.lr_decay = float(_same(groups, "lr_decay"))
    # Betas of groups give torch's power of the present beta. Without them it is the product of all
    # former ones, which differs after a scheduler (OneCycleLR, CyclicLR) has changed beta1.
    has_powers = kind in ("adam", "adamw")
    if len(groups) > 1 or has_powers:
        options.set_groups(rates, betas if has_powers or len(set(betas)) > 1 else None)
    return options


# ---- torch's own optimizers ----


def convert(optimizer: torch.optim.Optimizer) -> ZinfOptimizer:
    """Return zinf's form of an optimizer; of torch's, one that shares its param_groups."""
    if isinstance(optimizer, ZinfOptimizer):
        if optimizer.engine is not None:
            raise InvalidArgument("the optimizer belongs to another model already")
        return optimizer
    kinds: dict[type, type[ZinfOptimizer]] = {
        torch.optim.AdamW: AdamW,
        torch.optim.Adam: Adam,
        torch.optim.SGD: SGD,
        torch.optim.Adagrad: Adagrad,
    }
    kind = kinds.get(type(optimizer))
    if kind is None:
        raise InvalidArgument(
            f"{type(optimizer).__module__}.{type(optimizer).__qualname__} is no optimizer that "
            "zinf computes: use AdamW, Adam, SGD or Adagrad of torch.optim, or zinf.optim"
        )
    groups = optimizer.param_groups
    if kind is Adam and groups and groups[0].get("decoupled_weight_decay"):
        kind = AdamW
    if kind is not Adagrad and optimizer.state:  # Adagrad makes its zeros when it is made
        raise InvalidArgument(
            "the optimizer has made steps already, and zinf cannot take its state: prepare it "
            "before the first step"
        )
    if kind is Adagrad and any(int(s.get("step", 0)) for s in optimizer.state.values()):
        raise InvalidArgument("the optimizer has made steps already: prepare it before the first")
    for number, group in enumerate(groups):
        check_group(kind.kind, group, number)
    made: ZinfOptimizer = kind.__new__(kind)
    torch.optim.Optimizer.__init__(
        made, [{**group, "params": list(group["params"])} for group in groups], optimizer.defaults
    )
    made.param_groups = groups
    optimizer.state.clear()
    _forward(optimizer, made)
    return made


def _forward(former: Any, made: ZinfOptimizer) -> None:
    """Refuse steps of the former optimizer, and let its schedulers see the steps of the new one."""

    def refuse(closure: Any = None) -> None:
        raise ZinfError(
            "this optimizer was given to zinf.prepare(), which returned another one: use that"
        )

    counted = getattr(former.step, "_with_counter", False) or hasattr(
        former.step, "_wrapped_by_lr_sched"
    )
    former.step = refuse
    if not counted:
        return
    refuse._with_counter = True  # type: ignore[attr-defined]
    refuse._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    step = made.step

    def step_and_count(closure: Any = None) -> Any:
        result = step(closure)
        former._step_count = getattr(former, "_step_count", 0) + 1
        former._opt_called = True
        return result

    made.step = step_and_count  # type: ignore[method-assign]


def _refuse_foreign(optimizer: Any, *_: Any) -> None:
    if isinstance(optimizer, ZinfOptimizer):
        return
    for group in optimizer.param_groups:
        if any(isinstance(item, Guarded) for item in group["params"][:1]):
            raise ZinfError(
                f"{type(optimizer).__name__} steps over parameters that lie in zinf, where it "
                "finds no gradients: give the optimizer to zinf.prepare(), and use what it returns"
            )


_is_installed = False


def _refuse_groups(stock: Any) -> Any:
    @functools.wraps(stock)
    def method(self: Any, param_group: dict[str, Any]) -> None:
        stock(self, param_group)
        if not isinstance(self, ZinfOptimizer):
            _refuse_foreign(self)

    return method


def install() -> None:
    """Refuse steps of other optimizers over zinf's parameters.

    torch < 2.0 has no hook for it: the optimizer is refused when it is made.
    """
    global _is_installed  # noqa: PLW0603 - one hook for the process
    register: Any = getattr(
        sys.modules["torch.optim.optimizer"], "register_optimizer_step_pre_hook", None
    )
    if register is not None and not _is_installed:
        register(_refuse_foreign)
    elif not _is_installed:
        kind: Any = torch.optim.Optimizer
        kind.add_param_group = _refuse_groups(kind.add_param_group)
    _is_installed = True
