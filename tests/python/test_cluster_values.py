"""Amounts with units, the lines of keys, the library."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismllm import cluster
from prismllm.cluster.lines import lines_of, tomllib
from prismllm.cluster.quantities import BANDWIDTH, DURATION, FLOPS, SIZE

# --- amounts


@pytest.mark.parametrize(("quantity", "text", "amount"), [
    (BANDWIDTH, "400 Gb/s", 50e9),
    (BANDWIDTH, "400Gbps", 50e9),
    (BANDWIDTH, "3.35 TB/s", 3.35e12),
    (BANDWIDTH, "1 Gbit/s", 125e6),
    (BANDWIDTH, "1 GiB/s", 2**30),
    (BANDWIDTH, "8 b/s", 1),
    (BANDWIDTH, 5e10, 50e9),
    (DURATION, "30.66 ns", 30660),
    (DURATION, "143.75 ns", 143750),
    (DURATION, "0.0005ms", 500_000),
    (DURATION, "1 us", 10**6),
    (DURATION, "1 µs", 10**6),
    (DURATION, 1.5e-6, 1_500_000),
    (DURATION, 0, 0),
    (DURATION, "1000 s", 10**15),
    (SIZE, "64 MB", 64 * 10**6),
    (SIZE, "80 GiB", 80 * 2**30),
    (SIZE, 4096, 4096),
    (FLOPS, "989.5 TFLOP/s", 989.5e12),
    (FLOPS, "1 PFLOPS", 1e15),
])  # fmt: skip
def test_amounts_are_read_exactly(quantity, text, amount):
    assert quantity.read(text) == Decimal(str(amount))


@pytest.mark.parametrize(("quantity", "value"), [
    (BANDWIDTH, "400"), (BANDWIDTH, "400 gb/s"), (BANDWIDTH, "400  Gb/s"), (BANDWIDTH, "-1 Gb/s"), (BANDWIDTH, 0),
    (BANDWIDTH, "0.5 B/s"), (BANDWIDTH, "1e19 B/s"), (BANDWIDTH, math.inf), (BANDWIDTH, math.nan), (BANDWIDTH, True),
    (BANDWIDTH, "1e999 B/s"), (BANDWIDTH, "1" * 50 + " B/s"),
    pytest.param(BANDWIDTH, 10**5000, id="thousands of digits"), (BANDWIDTH, "400 Gb/s\n"),
    (DURATION, "1 min"), (DURATION, "1001 s"), (DURATION, -1), (DURATION, None), (DURATION, "٣ s"),
    (SIZE, "64 Mb"), (SIZE, 0), (SIZE, []), (FLOPS, "1 TFLOP"),
])  # fmt: skip
def test_other_amounts_are_none(quantity, value):
    assert quantity.read(value) is None


@given(st.integers(1, 10**6), st.sampled_from("kMGT"))
def test_eight_bits_are_a_byte(count, prefix):
    bits, octets = BANDWIDTH.read(f"{8 * count} {prefix}b/s"), BANDWIDTH.read(f"{count} {prefix}B/s")
    assert bits == octets == count * 1000 ** ("kMGT".index(prefix) + 1)


@given(st.text(alphabet="0123456789.eE+- GMkbBitps/µnu", max_size=12))
def test_no_text_is_more_than_refused(text):
    for quantity in (BANDWIDTH, DURATION, SIZE, FLOPS):
        amount = quantity.read(text)
        assert amount is None or quantity.least <= amount <= quantity.most


# --- lines

VALUES = ["1",
          '"a # [b] = c"', "'''x\n]\n'''", '"""a\n"quoted" \\"\n"""', "[1, # one\n 2,\n [3]]", "{ x = 1, y = [2] }",
          "1979-05-27 07:32:00", "true", '""', "[ ]", "{}", '"""five quotes"""""']  # fmt: skip
KEYS = st.sampled_from(["a", "b-c", '"d.e"', "f.g", "'h'", "i . j", "k_1"])


@st.composite
def documents(draw):
    """TOML text and, for the keys at the start of a line, their lines."""
    text, expected, tables = "", {}, {}

    def line():
        return text.count("\n") + 1

    def parts(key):
        return tuple(part.strip().strip("\"'") for part in ([key] if '"' in key else key.split(".")))

    for number in range(draw(st.integers(0, 5))):
        text += draw(st.sampled_from(["", "\n", "# a = 1\n", "  \n# [x]\n"]))
        name = draw(st.sampled_from(["t", "u.v", '"w x"', "many"]))
        many = name == "many"
        path = parts(name) if many else (f"{number}", *parts(name))
        header = name if many else f"{number}.{name}"
        if many:
            tables[path] = tables.get(path, -1) + 1
            expected.setdefault(path, line())
            path = (*path, tables[path])
        expected[path] = line()
        text += f"[[{header}]]\n" if many else f"[ {header} ] # said\n"
        for key in draw(st.lists(KEYS, unique=True, max_size=4)):
            expected[(*path, *parts(key))] = line()
            text += f"{key} = {draw(st.sampled_from(VALUES))}\n"
    return text, expected


def paths(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


@given(documents())
def test_every_key_of_a_file_has_its_line(document):
    text, expected = document
    found = lines_of(text)
    assert {key: found[key] for key in expected} == expected
    parents = {path[:length] for path in found for length in range(1, len(path))}
    assert found.keys() | parents == set(paths(tomllib.loads(text)))


def test_keys_within_inline_tables_and_lists_have_lines_too():
    text = 'a = 1\nnic = { count = 2, devices = [\n  [0],\n  [1, 7],\n] }\n[[n]]\n[[n.m]]\nx = """\n\n"""\ny = 1\n'
    found = lines_of(text)
    assert found["nic", "count"] == 2 and found["nic", "devices", 1, 1] == 4
    assert found["n", 0, "m", 0] == 7 and found["n", 0, "m", 0, "y"] == 11


# --- the library


def test_the_library_has_the_devices_of_the_field():
    named = {"V100", "A100-40GB", "A100-80GB", "A800", "H100-SXM", "H100-PCIe", "H800", "H20", "H200", "B100", "B200",
             "GB200", "L40S", "MI300X", "Ascend-910B"}  # fmt: skip
    assert named == set(cluster.devices())
    for name, device in cluster.devices().items():
        assert device.name == name and device.source and device.tdp_watts > 0
        assert 30e9 < device.memory_bytes < 300e9 and 5e11 < device.memory_bytes_per_second < 1e13
        assert device.fp16_flops >= device.bf16_flops and device.fp8_flops in (
            0,
            pytest.approx(2 * device.fp16_flops, rel=0.02),
        )
        assert device.scale_up_link in cluster.link_types()


def test_links_have_the_figures_of_the_papers_tables():
    links = cluster.link_types()
    gbps_and_ns = {"NVLink3": (2400, 30.66), "NVLink4": (3600, 20.44), "NVLink5": (7200, 10.22), "PCIe4": (256, 287.5),
                   "PCIe5": (512, 143.75), "ConnectX-7": (400, 368)}  # fmt: skip
    for name, (gbps, ns) in gbps_and_ns.items():
        assert (links[name].bytes_per_second, links[name].delay_ps) == (gbps * 1e9 / 8, round(ns * 1000))


def test_delays_follow_the_tables_rule_except_for_network_cards():
    for link in cluster.link_types().values():
        if "Ethernet" not in link.name and link.name != "ConnectX-7":
            assert link.delay_ps * link.bytes_per_second / 1e12 == pytest.approx(9200, rel=0.001), link.name


def test_nvlink_devices_with_all_links_have_their_kinds_bandwidth():
    links, devices = cluster.link_types(), cluster.devices()
    for name in ("V100", "A100-40GB", "A100-80GB", "H100-SXM", "H20", "H200", "B100", "B200", "GB200"):
        device = devices[name]
        assert device.scale_up_bytes_per_second == links[device.scale_up_link].bytes_per_second


def test_the_library_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        cluster.devices()["V100"] = None
