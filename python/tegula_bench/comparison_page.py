"""comparison_data.json and comparison_dashboard.html: what tegula.compare found."""

import datetime
import json

from .dashboard import chart_page, comparison_charts
from .dashboard.chart_data import finite


def summary(results):
    rows = []
    for name, one in results.items():
        times = one.get("times", {})
        peers = [times[peer]["median"] for peer in times if peer != "tegula"]
        ours = times.get("tegula", {}).get("median")
        ratio = min(peers) / ours if peers else None
        rows.append([name, "yes" if one["agrees"] else "NO", one["difference"], one["bound"], ours, min(peers, default=None), ratio])
    heading = ["model", "agrees", "difference", "bound", "Tegula, ms", "fastest peer, ms", "peer / Tegula"]
    return chart_page.table(heading, rows, caption="Every model beside transformers with the same weights")


def data_of(results, device):
    """With the predecessor's keys: metadata{timestamp}, comparisons{model{config, speedup, batch_size, seq_len}}."""
    compared = {}
    for one in results:
        times = one.get("times", {})
        peers = [times[peer]["median"] for peer in times if peer != "tegula"]
        speedup = {"speedup": min(peers) / times["tegula"]["median"]} if peers else {}
        compared[one["model"]] = {**one, **speedup}
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"metadata": {"timestamp": now, "device": device}, "comparisons": compared}


def write(folder, results, device, svg=False):
    """The page's path. results: as tegula.compare has them, one for each model."""
    data = data_of(results, device)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison_data.json").write_text(json.dumps(finite(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    compared = data["comparisons"]
    lines = [f"<p>{data['metadata']['timestamp']}, {device}.</p>", *summary(compared)]
    charts = comparison_charts.charts_of(compared)
    return chart_page.write(folder / "comparison_dashboard.html", "Tegula beside transformers", lines, charts, svg)
