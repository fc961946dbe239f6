"""The model card of remaining life, made from the figures of a scoring run."""

from __future__ import annotations

from collections.abc import Mapping

from anomaly.life.drift import ANOTHER_WORLD, STEADY
from anomaly.life.model import LifeSettings

MEAN = "mean over seeds"


def card(subsets: Mapping[str, Mapping[str, Mapping[str, float]]], settings: LifeSettings) -> str:
    """Markdown; ``subsets`` as ``make score`` tells them: subset -> row -> figure."""
    lines = [
        "# Model card: remaining life", "",
        "Made by `make score`. For people who decide whether a machine is called in.", "",
        "**What it is.** Gradient-boosted trees over smoothed, per-regime standardised sensors and a linear wear "
        "index, "
        f"{settings.folds} folds of whole units, averaged and tracked in time. Input: one row of sensors and "
        f"settings a "
        f"cycle from a unit's first cycle on. Output: cycles left, at most {settings.cap:g}, and an interval "
        f"meant to hold "
        f"{100 * settings.coverage:g} % of units.", "",
        "**What it was trained on.** Simulated turbofans run to failure (NASA C-MAPSS), one kind of fault a "
        "subset. It is "
        "a method to be trained on a fleet's own runs to failure; these weights mean nothing for another machine.", "",
        "**What it cannot do.** It does not tell fresh units apart (all get about the cap), knows no fault that the "
        "training units did not have, and no operating regime that they did not see.", "",
        "**How good it is** (units it never saw, judged at their last known cycle, mean over seeds):", "",
        "| subset | error, capped | always the mean | ridge | interval holds | width, cycles | drift |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, rows in subsets.items():
        ours = rows[MEAN]
        lines.append(
            f"| {name} | {ours['rmse_capped']:.2f} | {rows['always the mean']['rmse_capped']:.2f} | "
            f"{rows['ridge']['rmse_capped']:.2f} | {100 * ours['coverage']:.0f} % | {ours['mean_width']:.0f} | "
            f"{ours['drift']:.2f} |"
        )
    ratio = settings.cost_missed / settings.cost_false
    lines += [
        "", f"**When to call.** A needless visit costs {settings.cost_false:g}, a failure within "
        f"{settings.horizon:g} cycles "
        f"that nobody called for {settings.cost_missed:g}. At that ratio ({ratio:g}) the cheapest limit on "
        f"training units, "
        "and what a unit then costs on units never seen:", "",
        "| subset | call in at or below | cost a unit | call nobody | call everybody |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name, rows in subsets.items():
        costs = [rows[row]["cost_a_unit"] for row in (MEAN, "call nobody", "call everybody")]
        lines.append(f"| {name} | {rows[MEAN]['call_at']:.0f} | " + " | ".join(f"{cost:.2f}" for cost in costs) + " |")
    lines += [
        "", "**How it is watched.** The model keeps ten bins of each smoothed sensor (`anomaly.life.drift`). The "
        "stability "
        f"index of the rows seen now is steady below {STEADY:g}; above {ANOTHER_WORLD:g} train anew. Units cut "
        f"short in "
        "mid-life are less worn than runs to failure, so a fleet is compared with a fleet of like age, or its "
        "first month.", "",
    ]  # fmt: skip
    return "\n".join(lines)
