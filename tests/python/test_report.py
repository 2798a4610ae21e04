"""The HTML report: opened in Chromium where there is one, and its figures against arithmetic."""

import base64
import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from small_traces import MS, Recording, build, data_parallel, message_pair

from prismllm.report import write_report
from prismllm.report.timeline import choose_iterations, choose_ranks, merge
from prismllm.units import duration, size

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PLOTS = ["timeline", "usage", "iterations", "memory", "peaks"]


@pytest.fixture
def report(tmp_path):
    def write(trace, **options):
        path = tmp_path / "report.html"
        write_report(trace, path, **options)
        return path

    return write


class Page(html.parser.HTMLParser):
    """Ids of a page, what it would load from elsewhere, and its visible text."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.external, self.text, self.inside = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.inside.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.external += [values[key] for key in ("src", "href") if key in values]

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"script", "style"} & set(self.inside):
            self.text.append(data)


def data_of(path):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found.group(1))


def rendered(path):
    """The page after its scripts have run, and what they complained about."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
               "--virtual-time-budget=20000", f"--user-data-dir={path.parent}/chromium", f"file://{path}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def check_page(path, plots=PLOTS):
    page = Page(path.read_text())
    assert page.external == []
    assert set(plots) <= set(page.ids)
    if not CHROMIUM:
        return
    dom, complaints = rendered(path)
    assert complaints == []
    for plot in plots:
        assert re.search(rf'id="{plot}" class="plot js-plotly-plot"', dom), f"{plot} was not drawn"


def test_the_page_opens_without_an_error_and_draws_every_plot(report):
    check_page(report(data_parallel([10, 14, 12], iterations=4)))


def test_two_traces_side_by_side(report):
    path = report(data_parallel([10, 14], iterations=3), compare=data_parallel([10, 12], iterations=3))
    check_page(path, [*PLOTS, "difference"])
    text = " ".join(Page(path.read_text()).text)
    assert "17 ms" in text and "15 ms" in text and "-11.8%" in text  # 15 / 17 - 1
    difference = data_of(path)["other"]
    assert difference["busy"] == [0, -2] and difference["waiting"] == [-2, 0]


def test_traces_without_marks_memory_or_communication_have_pages_too(report):
    alone = Recording(0, [("default_pg", [0])])
    alone.compute(MS)
    check_page(report(build([alone])))


def test_figures_follow_from_the_trace(report):
    """Iterations last 17 ms; busy 11 and 15 ms, exposed 2 each, waiting 4 and 0."""
    path = report(data_parallel([10, 14], iterations=3, nbytes=4096))
    text = " ".join(Page(path.read_text()).text)
    for figure in ("17 ms", "76.5%", "11.8%", "rank 1", "24.0 KiB"):  # 26, 4 and 4 of 34 ms; 3 x 2 x 4 KiB
        assert figure in text, figure
    data = data_of(path)
    assert data["usage"]["busy"][0] == [11, 15] and data["usage"]["waiting"][0] == [4, 0]
    assert data["iterations"]["slowest"] == [17, 17, 17]
    assert data["memory"]["peaks"] == [2002, 4002]


def test_the_critical_path_and_late_comers_are_marked(report):
    """Rank 1 computes 14 ms and issues for 1, the transfer of rank 0 takes 2; rank 0 waited 4 ms for it."""
    path = report(data_parallel([10, 14], iterations=3, nbytes=4096, metadata={"clock_domain": "one"}))
    drawn = data_of(path)["timeline"]["iterations"][1]["path"]
    columns = {name: np.frombuffer(base64.b64decode(drawn[name]), kind)
               for name, kind in (("rank", "<u2"), ("row", "u1"), ("start", "<f4"), ("end", "<f4"))}  # fmt: skip
    assert columns["rank"].tolist() == [1, 1, 0] and columns["row"].tolist() == [0, 0, 1]
    assert columns["start"].tolist() == [0, 14, 15] and columns["end"].tolist() == [14, 15, 17]
    text = " ".join(" ".join(Page(path.read_text()).text).split())
    assert "all_reduce 1 of group 'default_pg' 2 4.0 KiB rank 1 4 ms 4 ms" in text


def test_a_trace_without_times_says_that_it_was_replayed(report):
    path = report(data_parallel([10, 14], timed=False))
    text = " ".join(Page(path.read_text()).text)
    assert "replay of it" in text and "not as measurement" in text
    check_page(path)


def test_names_of_programs_cannot_run_in_the_page(report):
    rank = Recording(0, [("</script><script>alert(1)</script>", [0])])
    rank.compute(MS, name="</script><script>alert(2)</script>")
    rank.wait(*rank.issue("barrier", 0, 0, 2 * MS), 2 * MS)
    path = report(build([rank], metadata={"program": ["<script>alert(3)</script>"]}))
    assert "<script>alert" not in path.read_text()
    check_page(path)


def test_short_neighbours_become_one_span_of_the_kind_that_takes_most_time():
    start = np.asarray([0, 2, 3, 20, 120])
    end = np.asarray([2, 3, 20, 120, 121])
    spans = (np.zeros(5, int), np.asarray([0, 1, 4, 0, 1]), np.arange(5), start, end)
    row, kind, label, begin, stop, merged = merge(spans, pixel=50)
    assert kind.tolist() == [4, 0, 1] and merged.tolist() == [3, 1, 1]
    assert begin.tolist() == [0, 20, 120] and stop.tolist() == [20, 120, 121]
    assert label.tolist() == [0, 3, 4] and row.tolist() == [0, 0, 0]


def test_rows_are_never_merged_with_each_other():
    spans = (np.asarray([0, 1]), np.zeros(2, int), np.zeros(2, int), np.asarray([1, 2]), np.asarray([2, 3]))
    assert merge(spans, pixel=1000)[5].tolist() == [1, 1]


def test_large_jobs_show_some_ranks_and_say_so(report):
    path = report(data_parallel([10 + r % 7 for r in range(300)], iterations=20))
    data = data_of(path)
    assert len(data["timeline"]["ranks"]) == 48 and len(data["usage"]["busy"][0]) == 300
    assert len(data["timeline"]["iterations"]) * 48 <= 240
    assert path.stat().st_size < 15e6
    check_page(path)
    if CHROMIUM:
        assert "48 of 300 ranks are drawn" in rendered(path)[0]


def test_who_is_waited_for_most_and_the_slowest_iteration_are_always_shown():
    trace = data_parallel([1] * 300, iterations=1)
    assert {137, 211} <= set(choose_ranks(trace, [137, 211]))
    times = np.ones(1000, np.int64)
    times[777] = 2
    assert 777 in choose_iterations(times, ranks=4) and len(choose_iterations(times, ranks=4)) <= 12


def test_a_message_is_labelled_with_its_peer(report):
    assert "recv, 64 B from rank 0" in data_of(report(message_pair()))["timeline"]["labels"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ns"), (9.99999e-4, "1 ms"), (1.23456e-3, "1.235 ms"), (0.9999, "999.9 ms"), (0.99999, "1 s"),
     (81.264, "81.26 s"), (1234, "1234 s"), (12345.6, "12346 s"), (999.4e-6, "999.4 µs"), (5e-7, "500 ns")],
)  # fmt: skip
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


def test_sizes_for_people():
    assert [size(v) for v in (0, 1023, 1536, 3 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
