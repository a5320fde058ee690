"""report: plots and a page of what the results file holds."""

import sys

from .results import results_file
from .results.newest_runs import newest, with_failures
from .results.profile_plots import draw_profiles
from .results.results_page import page
from .results.step_plots import draw_steps, pyplot


def run(options, command):
    """(exit status, rows)"""
    rows = results_file.read(options.csv)
    cases = with_failures(rows, newest(rows))
    plt, names, plots = pyplot(), [], options.out / "plots"
    if plt:
        names = draw_steps(plt, cases, plots) + draw_profiles(plt, cases, plots)
    else:
        print(f"no plots: expected matplotlib, got none; elsewhere: report --csv {options.csv}", file=sys.stderr)
    pictures = [plots / f"{name}.svg" for name in names]
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(page(cases, pictures)) + "\n"
    (options.out / "index.html").write_text(text, encoding="utf-8")
    options.say(f"{options.out / 'index.html'}: {len(cases)} cases, {len(names)} plots")
    return 0, []
