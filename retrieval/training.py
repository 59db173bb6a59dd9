"""Training of balancers: the modules of `balancing` in torch, what they are to achieve, and how.

Two losses over photos and what was asked of them, with a_j the area of the boxes in position j:

- ``recall``: the boxes' area that soft choices of 64, 128, 200, 256 and 400 positions miss, the mean over
  these budgets K: ``1 - sum_j w_j(K) a_j / sum_j a_j``, w the `soft_weights` of the logits
- ``cells``: binary cross-entropy of each position against the part of it that is in boxes, both sides of a
  photo weighing alike: ``-1/2 (sum_j y_j log r_j / sum y + sum_j (1 - y_j) log(1 - r_j) / sum (1 - y))``

Photos are dealt out by a generator: those held out decide when to stop, by their mean recall at 200 of 1,024.
Half of the batches are mirrored. The same examples, options and seed give the same weights on one machine.

The only module of retrieval, beside the adapter of vision-language models, that imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ..catalogue.errors import UsageError
from ..catalogue.types import GRID
from .balancing import ASKED_SCALE, LEANING, SCORES, STATISTICS, Balancer, Kind
from .evidence import PLANES
from .examples import Examples, recall

BUDGETS = (64, 128, 200, 256, 400)
"""Of 1,024 positions: the budgets that balancers are trained and measured for."""

MAIN_BUDGET = 200

TENSION_RATE = 10
"""What the rate is multiplied by for the tensions themselves: a logit has far to go, and there are three."""

Loss = Literal["recall", "cells"]


class _SoftWeights(torch.autograd.Function):
    """See `soft_weights`. The threshold is a function of the values, and the gradient goes through it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, budget: float, temperature: float) -> Tensor:
        low = values.amin(1, keepdim=True) - 20 * temperature
        high = values.amax(1, keepdim=True) + 20 * temperature
        for _ in range(40):
            middle = (low + high) / 2
            above = torch.sigmoid((values - middle) / temperature).sum(1, keepdim=True) > budget
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        weights = torch.sigmoid((values - (low + high) / 2) / temperature)
        ctx.save_for_backward(weights)
        ctx.temperature = temperature
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        slopes = weights * (1 - weights) / ctx.temperature
        total = slopes.sum(1, keepdim=True).clamp_min(torch.finfo(slopes.dtype).tiny)
        common = (slopes * gradients[0]).sum(1, keepdim=True) / total
        return slopes * (gradients[0] - common), None, None


def soft_weights(values: Tensor, budget: float, temperature: float) -> Tensor:
    """A choice of `budget` positions that gradients can go through: [B, N] in (0, 1), rows sum to `budget`.

    ``w_j = sigmoid((v_j - t) / temperature)``, t such that they sum to the budget. As the temperature falls,
    they go to 1 for the `budget` highest values and to 0 for the others: the choice of `TopKAllocator`.

    Args:
        values: [B, N].
        budget: above 0 and below N.
        temperature: above 0, in units of the values.

    Raises:
        UsageError: a number is not as it must be.
    """
    if not (0 < budget < values.shape[1] and temperature > 0):
        raise UsageError(
            f"expected a budget between 0 and {values.shape[1]} and a temperature above 0, got {budget} and "
            f"{temperature}"
        )
    weights: Tensor = _SoftWeights.apply(values, budget, temperature)
    return weights


def recall_loss(logits: Tensor, area: Tensor, temperature: float = 0.5) -> Tensor:
    """The loss ``recall`` of the module, from logits and areas [B, N]."""
    parts = area / area.sum(1, keepdim=True)
    scale = logits.shape[1] / GRID**2
    missed = [
        1 - (soft_weights(logits, budget * scale, temperature) * parts).sum(1).mean() for budget in BUDGETS
    ]
    return torch.stack(missed).mean()


def cells_loss(logits: Tensor, area: Tensor) -> Tensor:
    """The loss ``cells`` of the module, from logits and areas [B, N], in parts of the image."""
    inside = (area * area.shape[1]).clamp(0, 1)
    outside = 1 - inside
    parts = [
        (side * F.softplus(sign * logits)).sum(1) / side.sum(1).clamp_min(1)
        for side, sign in ((inside, -1), (outside, 1))
    ]
    return (parts[0] + parts[1]).mean() / 2


LOSSES: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {"recall": recall_loss, "cells": cells_loss}


class _Cells(nn.Module):
    """What both balancers have: the network over positions, and how far the tensions count."""

    def __init__(self, mean: Tensor, spread: Tensor, hidden: int, dropout: float) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)
        self.pull = nn.Parameter(torch.tensor([2.0]))
        self.cells = nn.ModuleList([nn.Linear(len(PLANES), hidden), nn.Linear(hidden, hidden)])
        self.out = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(dropout)

    def hidden(self, planes: Tensor) -> Tensor:
        """[B, N, H] of evidence [B, F, N]."""
        assert isinstance(self.mean, Tensor)
        assert isinstance(self.spread, Tensor)
        x = ((planes - self.mean[:, None]) / self.spread[:, None]).transpose(1, 2)
        first, second = self.cells
        hidden: Tensor = self.dropout(F.relu(second(F.relu(first(x)))))
        return hidden

    def logits(self, planes: Tensor, tensions: Tensor, hidden: Tensor) -> Tensor:
        """[B, N], with tensions [B, 3] or [1, 3]."""
        own, whole, drawing, telling, peak = (planes[:, PLANES.index(name)] for name in LEANING)
        particularize, explore, diversify = tensions[:, :, None].unbind(1)
        told = (1 - particularize) * whole + particularize * own
        drawn = (1 - explore) * told + explore * (drawing + telling) / 2
        leaning = drawn * ((1 - diversify) * peak + diversify)
        made: Tensor = self.pull * leaning + self.out(hidden)[..., 0]
        return made


class TensionBalancer(_Cells):
    """Three tensions that are learned once, and a small network: see `balancing`."""

    def __init__(self, mean: Tensor, spread: Tensor, hidden: int = 32, dropout: float = 0.0) -> None:
        super().__init__(mean, spread, hidden, dropout)
        self.tensions = nn.Parameter(torch.zeros(3))

    def forward(self, planes: Tensor, asked: Tensor) -> Tensor:
        """Logits [B, N] of evidence [B, F, N]; `asked` [B, D] is not looked at."""
        return self.logits(planes, torch.sigmoid(self.tensions)[None], self.hidden(planes))


class AdaptiveBalancer(_Cells):
    """Tensions and gates for each question, from its embedding and the scores' figures: see `balancing`."""

    def __init__(
        self,
        mean: Tensor,
        spread: Tensor,
        asked: int,
        *,
        hidden: int = 32,
        inner: int = 448,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(mean, spread, hidden, dropout)
        self.setting = nn.ModuleList(
            [nn.Linear(asked + STATISTICS, inner), nn.Linear(inner, len(("p", "e", "d")) + hidden)]
        )
        for parameter in self.setting[1].parameters():
            nn.init.zeros_(parameter)  # begins as a tension balancer, whatever is asked

    def forward(self, planes: Tensor, asked: Tensor) -> Tensor:
        """Logits [B, N] of evidence [B, F, N] and text embeddings [B, D]."""
        scores = planes[:, [PLANES.index(name) for name in SCORES]]
        figures = [scores.mean(2), scores.amax(2), scores.std(2, correction=0)]
        first, second = self.setting
        read = torch.cat([ASKED_SCALE * asked, *figures], dim=1)
        settings = torch.sigmoid(second(self.dropout(F.relu(first(read)))))
        return self.logits(planes, settings[:, :3], self.hidden(planes) * (2 * settings[:, None, 3:]))


@dataclass(frozen=True, slots=True)
class Options:
    """How a balancer is trained.

    Attributes:
        kind: which of the two.
        loss: one of `LOSSES`.
        seed: of all that is drawn: first weights, photos held out, order, mirroring, dropout.
        epochs: at most.
        patience: epochs without a better recall on the photos held out, after which it ends.
        held: part of the photos that is held out.
        rate: of AdamW, the highest of one cycle over all epochs.
        decay: of its weights.
        batch: examples a step.
        dropout: part of the hidden numbers that is left out of a step.
        hidden, inner: sizes, see `balancing.shapes`.

    Raises:
        UsageError: a number is not as it must be.
    """

    kind: Kind = "tension"
    loss: Loss = "cells"
    seed: int = 0
    epochs: int = 20
    patience: int = 8
    held: float = 0.2
    rate: float = 3e-3
    decay: float = 1e-2
    batch: int = 64
    dropout: float = 0.2
    hidden: int = 32
    inner: int = 448

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.loss not in get_args(Loss):
            raise UsageError(
                f"expected one of the kinds {', '.join(get_args(Kind))} and of the losses "
                f"{', '.join(get_args(Loss))}, got {self.kind!r} and {self.loss!r}"
            )
        if not (0 < self.held < 1 and min(self.epochs, self.patience, self.batch) > 0 and self.seed >= 0):
            raise UsageError(
                "expected held between 0 and 1, epochs, patience and batch above 0 and a seed of 0 or more, "
                f"got {self}"
            )


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the examples: the mean loss, and the recall at 200 of 1,024 on the photos held out."""

    number: int
    loss: float
    recall: float


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What came of a training.

    Attributes:
        balancer: the weights of the best epoch.
        epochs: each of them.
        best: number of the best one.
        photos, held_photos: how many it was trained on, and how many were held out.
        examples, held_examples: likewise.
        recalls: on the photos held out, by budget of 1,024: of the balancer, of the look-up's own score
            (participatory), and of the best choice that there is.
    """

    balancer: Balancer
    epochs: tuple[Epoch, ...]
    best: int
    photos: int
    held_photos: int
    examples: int
    held_examples: int
    recalls: dict[int, dict[str, float]]

    def report(self) -> dict[str, object]:
        """All but the weights, as JSON has it."""
        return {
            "kind": self.balancer.kind,
            "about": dict(self.balancer.about),
            "photos": self.photos,
            "held_photos": self.held_photos,
            "examples": self.examples,
            "held_examples": self.held_examples,
            "best": self.best,
            "recalls": {str(budget): each for budget, each in self.recalls.items()},
            "epochs": [asdict(epoch) for epoch in self.epochs],
        }


def hold_out(photos: NDArray[np.int64], part: float, seed: int) -> NDArray[np.bool_]:
    """Which examples are of photos that are held out: bool [E]; at least one photo, and not all.

    Raises:
        UsageError: all examples are of one photo.
    """
    every = np.unique(photos)
    if len(every) < 2:
        raise UsageError("two photos with boxes are needed at least: one to learn from, one to hold out")
    count = min(len(every) - 1, max(1, round(part * len(every))))
    held: NDArray[np.bool_] = np.isin(photos, np.random.default_rng(seed).permutation(every)[:count])
    return held


def train(
    examples: Examples,
    encoder: str,
    options: Options = Options(),
    *,
    held: NDArray[np.bool_] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Training:
    """Train a balancer.

    Args:
        examples: of two photos at least.
        encoder: fingerprint of the encoder that they were made with.
        options: how.
        held: bool [E], which examples are held out; drawn by photo when None.
        on_epoch: called after each.

    Raises:
        UsageError: all examples are of one photo.
    """
    torch.manual_seed(options.seed)
    drawn = torch.Generator().manual_seed(options.seed)
    held = hold_out(examples.photos, options.held, options.seed) if held is None else held
    learned, judged = examples.of(~held), examples.of(held)
    planes, asked, area = (torch.from_numpy(part) for part in (learned.planes, learned.asked, learned.area))
    module = _module(options, planes, asked.shape[1])
    alone = [value for name, value in module.named_parameters() if name in {"tensions", "pull"}]
    others = [value for name, value in module.named_parameters() if name not in {"tensions", "pull"}]
    rates = [options.rate, TENSION_RATE * options.rate]
    optimiser = torch.optim.AdamW(
        [{"params": others, "weight_decay": options.decay}, {"params": alone, "weight_decay": 0.0}]
    )
    steps = options.epochs * -(-len(learned) // options.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    epochs: list[Epoch] = []
    best, kept = -1.0, module.state_dict()
    for number in range(1, options.epochs + 1):
        module.train()
        losses = []
        for chosen in torch.split(torch.randperm(len(planes), generator=drawn), options.batch):
            x, a = planes[chosen], area[chosen]
            if torch.rand((), generator=drawn) < 0.5:
                x, a = _mirrored(x), _mirrored(a)
            loss = LOSSES[options.loss](module(x, asked[chosen]), a)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
        found = float(recall(predict(module, judged), judged.area, _scaled(MAIN_BUDGET, judged)).mean())
        epochs.append(Epoch(number, float(np.mean(losses)), found))
        on_epoch(epochs[-1])
        if found > best:
            best, kept = found, {name: value.clone() for name, value in module.state_dict().items()}
        best_number = max(epochs, key=lambda epoch: epoch.recall).number  # of equals, the first
        if number - best_number >= options.patience:
            break
    module.load_state_dict(kept)
    about = {
        "options": asdict(options),
        "epoch": best_number,
        "photos": len(np.unique(learned.photos)),
        "examples": len(learned),
        "held_recall": best,
    }
    return Training(
        export(module, encoder, about),
        tuple(epochs),
        best_number,
        len(np.unique(learned.photos)),
        len(np.unique(judged.photos)),
        len(learned),
        len(judged),
        _recalls(predict(module, judged), judged),
    )


def predict(module: nn.Module, examples: Examples) -> NDArray[np.float32]:
    """Logits of examples: float32 [E, N]."""
    module.eval()
    with torch.no_grad():
        parts = [
            module(torch.from_numpy(planes), torch.from_numpy(asked))
            for planes, asked in zip(_batches(examples.planes), _batches(examples.asked), strict=True)
        ]
    made: NDArray[np.float32] = torch.cat(parts).numpy()
    return made


def export(module: TensionBalancer | AdaptiveBalancer, encoder: str, about: Mapping[str, object]) -> Balancer:
    """The weights of a module, for `Balancer` to apply."""
    kind: Kind = "tension" if isinstance(module, TensionBalancer) else "adaptive"
    tensors = {name: value.detach().numpy().astype(np.float32) for name, value in module.state_dict().items()}
    return Balancer(kind, encoder, tensors, about)


def _module(options: Options, planes: Tensor, asked: int) -> TensionBalancer | AdaptiveBalancer:
    mean, spread = planes.mean((0, 2)), planes.std((0, 2)) + 1e-6
    if options.kind == "tension":
        return TensionBalancer(mean, spread, options.hidden, options.dropout)
    return AdaptiveBalancer(
        mean, spread, asked, hidden=options.hidden, inner=options.inner, dropout=options.dropout
    )


def _mirrored(values: Tensor) -> Tensor:
    """Values [..., N] of a grid, left and right changed. All planes mean the same in a mirrored photo."""
    mirrored: Tensor = values.reshape(*values.shape[:-1], GRID, GRID).flip(-1).flatten(-2)
    return mirrored


def _batches(values: NDArray[np.float32], size: int = 256) -> list[NDArray[np.float32]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _scaled(budget: int, examples: Examples) -> int:
    return max(1, round(budget * int(examples.area.shape[1]) / GRID**2))


def _recalls(logits: NDArray[np.float32], examples: Examples) -> dict[int, dict[str, float]]:
    own = examples.planes[:, PLANES.index("participatory")]
    values = {"balancer": logits, "participatory": own, "best": examples.area}
    return {
        budget: {
            name: float(recall(each, examples.area, _scaled(budget, examples)).mean())
            for name, each in values.items()
        }
        for budget in BUDGETS
    }
