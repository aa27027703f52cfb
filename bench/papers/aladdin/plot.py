"""Devices that each contender needs, against the rate. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from bench.papers.aladdin.figure import Found

COLORS = {"default": "0.35", "JSQ": "C0", "power of two": "C1", "packing": "C3"}


def plot_needed(folder: Path, found: "Sequence[Found]") -> Path:
    """A row for each percentage, a panel for each model; what no fleet keeps is left out."""
    models = list(dict.fromkeys(one.setting.model for one in found))
    percents = list(dict.fromkeys(one.percent for one in found))
    figure = Figure(figsize=(3.6 * len(models) + 2, 3.0 * len(percents)), layout="constrained")
    rows = figure.subplots(len(percents), len(models), squeeze=False)
    for row, percent in zip(rows, percents, strict=True):
        for axes, model in zip(row, models, strict=True):
            _panel(axes, [one for one in found if (one.setting.model, one.percent) == (model, percent)])
            axes.set(title=f"{model}, {percent:g} %", xlabel="requests a second", ylim=(0, None))
        row[0].set_ylabel("devices")
    handles, labels = rows[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    setting = found[0].setting
    path = folder / f"{setting.device}{'-decode' if setting.is_split else ''}.png"
    figure.savefig(path, dpi=150)
    return path


def _panel(axes: Axes, found: "Sequence[Found]") -> None:
    for name in dict.fromkeys(one.contender.name for one in found):
        of_name = [one for one in found if one.contender.name == name]
        devices: dict[float, list[int]] = {}
        for one in of_name:
            if one.num_devices is not None:
                devices.setdefault(one.setting.rate, []).append(one.num_devices)
        color = COLORS.get(name.partition(",")[0], "C4")
        style = "--" if "," in name else "-"
        rates = sorted(devices)
        means = [sum(devices[rate]) / len(devices[rate]) for rate in rates]
        axes.plot(rates, means, style, marker="o", markersize=3, color=color, label=name)
    rates = sorted({one.setting.rate for one in found})
    usual = next((one for one in found if not one.contender.is_default), found[0])
    per_rate = usual.setting.bound(usual.contender) * usual.setting.size(usual.contender) / usual.setting.rate
    axes.plot(rates, [rate * per_rate for rate in rates], ":", color="0.6", linewidth=1, label="the least")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
