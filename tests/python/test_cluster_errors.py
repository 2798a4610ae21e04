"""A file that cannot be used gets one error: file, line, field, value, and what is accepted."""

import doctest
import json
import random
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismllm import cluster
from prismllm.cluster import lines, quantities
from prismllm.cluster.forms import Form
from prismllm.cluster.keys import file_form
from prismllm.cluster.tables import ByKind, Table

POD = """\
name = "pod"

[[node]]
count = 4
device = "H100-SXM"
devices = 8

[node.nic]
count = 8
bandwidth = "400 Gb/s"
delay = "1 us"

[fabric]
kind = "fat_tree"
nodes_per_tor = 2
aggregations = 2
uplink = { delay = "1 us" }
"""
NODE = POD[POD.index("[[node]]") : POD.index("[node.nic]")]
NIC = POD[POD.index("[node.nic]") : POD.index("[fabric]")]
FABRIC = POD[POD.index("[fabric]") :]

SITES = """\
name = "sites"
[[site]]
name = "a"
[site.fabric]
kind = "switch"
[[site.node]]
device = "V100"
devices = 1
nic = { type = "ConnectX-7" }
[[site]]
name = "b"
[site.fabric]
kind = "switch"
[[site.node]]
device = "V100"
devices = 1
nic = { type = "ConnectX-7" }
[[site_link]]
between = ["a", "b"]
bandwidth = "10 Gb/s"
delay = "1 ms"
"""
SITE_LINK = SITES[SITES.index("[[site_link]]") :]

LONG = {
    "<BANDWIDTH>": quantities.BANDWIDTH.accepted,
    "<TIME>": quantities.DURATION.accepted,
    "<DEVICES>": ", ".join(sorted(cluster.devices())),
    "<LINKS>": ", ".join(sorted(cluster.link_types())),
}

# What stands in POD or SITES, what stands there instead, the error, and whether the schema forbids it, too.
OF_POD = [
    ('name = "pod"\n', "",
     "1: name is missing; accepted: 1 to 200 characters", True),
    ('name = "pod"', 'name = ""',
     '1: name = ""; accepted: 1 to 200 characters', True),
    ('name = "pod"', "name = 7",
     "1: name = 7; accepted: 1 to 200 characters", True),
    ("devices = 8", "devics = 8",
     "6: node[0].devics is not a key; nearest: devices; accepted: count, device, devices, "
     "host_message_time, name, nic, pcie, scale_up", True),
    ("devices = 8\n", "",
     "3: node[0].devices is missing; accepted: a whole number from 1 to 1024", True),
    ("bandwidth =", "bandwith =",
     "10: node[0].nic.bandwith is not a key; nearest: bandwidth; accepted: attach, bandwidth, burst, "
     "count, delay, devices, efficiency, line_rate, type", True),
    ("[fabric]", "[fabrik]",
     "13: fabrik is not a key; nearest: fabric; accepted: fabric, name, node, placement, processors, site, "
     "site_link", True),
    ("aggregations = 2", "aggregations = 2\nspines = 2",
     '17: fabric.spines is not a key of kind "fat_tree"; nearest: uplink; accepted: aggregations, '
     "core_link, core_oversubscription, cores, kind, nodes_per_tor, oversubscription, tors_per_pod, uplink", True),
    ('uplink = { delay = "1 us" }', 'uplink = { dealy = "1 us" }',
     "17: fabric.uplink.dealy is not a key; nearest: delay; accepted: bandwidth, burst, cables, delay, "
     "efficiency, line_rate, type", True),
    ("count = 4", "count = 0",
     "4: node[0].count = 0; accepted: a whole number from 1 to 4194304", True),
    ("count = 4", "count = 4.5",
     "4: node[0].count = 4.5; accepted: a whole number from 1 to 4194304", True),
    ("count = 4", "count = true",
     "4: node[0].count = true; accepted: a whole number from 1 to 4194304", True),
    ("count = 4", 'count = "4"',
     '4: node[0].count = "4"; accepted: a whole number from 1 to 4194304', True),
    ("count = 4", "count = 5000000",
     "4: node[0].count = 5000000; accepted: a whole number from 1 to 4194304", True),
    ("count = 4", "count = 1979-05-27",
     '4: node[0].count = "1979-05-27"; accepted: a whole number from 1 to 4194304', True),
    ("devices = 8", "devices = 2000",
     "6: node[0].devices = 2000; accepted: a whole number from 1 to 1024", True),
    ('"H100-SXM"', '"H100-SMX"',
     '5: node[0].device = "H100-SMX"; nearest: H100-SXM; accepted: <DEVICES>', True),
    ('"H100-SXM"', "8",
     "5: node[0].device = 8; accepted: <DEVICES>", True),
    ('"400 Gb/s"', '"400 Gbs"',
     '10: node[0].nic.bandwidth = "400 Gbs"; accepted: <BANDWIDTH>', True),
    ('"400 Gb/s"', "-1",
     "10: node[0].nic.bandwidth = -1; accepted: <BANDWIDTH>", True),
    ('"400 Gb/s"', "nan",
     "10: node[0].nic.bandwidth = NaN; accepted: <BANDWIDTH>", False),
    ('"1 us"\n\n', '"1 minute"\n\n',
     '11: node[0].nic.delay = "1 minute"; accepted: <TIME>', True),
    ('delay = "1 us"\n\n', 'delay = "1 us"\nefficiency = 1.2\n\n',
     "12: node[0].nic.efficiency = 1.2; accepted: a number above 0, at most 1", True),
    ('delay = "1 us"\n\n', 'delay = "1 us"\nefficiency = 0\n\n',
     "12: node[0].nic.efficiency = 0; accepted: a number above 0, at most 1", True),
    ('delay = "1 us"\n\n', 'delay = "1 us"\ntype = "ConnectX7"\n\n',
     '12: node[0].nic.type = "ConnectX7"; nearest: ConnectX-7; accepted: <LINKS>', True),
    ('delay = "1 us"\n\n', 'delay = "1 us"\nattach = "socket"\n\n',
     '12: node[0].nic.attach = "socket"; accepted: switch, root', True),
    ('kind = "fat_tree"', 'kind = "torus"',
     '14: fabric.kind = "torus"; accepted: switch, fat_tree, rail, mesh', True),
    ('kind = "fat_tree"\n', "",
     "13: fabric.kind is missing; accepted: switch, fat_tree, rail, mesh", True),
    (NODE, "[node]\n",
     '3: node = {"nic": {"count": 8, "bandwidth": "400 Gb/s", "delay": "1 us...; accepted: tables in '
     "double brackets", True),
    ("devices = 8", 'devices = 8\nscale_up = "nvswitch"',
     '7: node[0].scale_up = "nvswitch"; accepted: a table with a kind', True),
    ("devices = 8", 'devices = 8\nscale_up = { kind = "pcie", delay = "1 us" }',
     '7: node[0].scale_up.delay is not a key of kind "pcie"; nearest: kind; accepted: kind', True),
    ('bandwidth = "400 Gb/s"\n', "",
     "8: node[0].nic.bandwidth is missing; accepted: <BANDWIDTH>; or a type", False),
    ('delay = "1 us"\n\n', "\n",
     "8: node[0].nic.delay is missing; accepted: <TIME>; or a type", False),
    ('delay = "1 us"\n\n', 'delay = "1 us"\nburst = "1 MB"\n\n',
     "12: node[0].nic.burst needs line_rate; accepted: both or none", False),
    ('delay = "1 us"\n\n', 'delay = "1 us"\nburst = "1 MB"\nline_rate = "300 Gb/s"\n\n',
     "13: node[0].nic.line_rate is 3.75e+10 bytes per second; accepted: at least the bandwidth, 5e+10 "
     "bytes per second", False),
    ('uplink = { delay = "1 us" }', 'uplink = { delay = "1 us", burst = "1 MB", line_rate = "1 Tb/s" }',
     "17: fabric.uplink.burst needs bandwidth; accepted: with a bandwidth of its own", False),
    ('"H100-SXM"', '{ name = "mine", memory = "80 GB", pcie = 5 }',
     "5: node[0].device.memory_bandwidth is missing; accepted: <BANDWIDTH>; or like, a device type that has it", False),
    ('"H100-SXM"', '"L40S"\nscale_up = { kind = "nvswitch" }',
     "6: node[0].scale_up.bandwidth is missing; accepted: <BANDWIDTH>; or a type", False),
    ("count = 8", "devices = [[0, 1], [2, 3], [4, 5], [6, 8]]",
     "9: node[0].nic.devices[3][1] = 8; accepted: a device of the node, 0 to 7", False),
    ("count = 8", "devices = [[0, 1], [2, 3], [4, 5], [6]]",
     "9: node[0].nic.devices has no NIC for device 7; accepted: each of 0 to 7 at least once", False),
    ("count = 8", "count = 2\ndevices = [[0, 1], [2, 3], [4, 5], [6, 7]]",
     "10: node[0].nic.devices has 4 NICs; accepted: 2, as count says", False),
    (FABRIC, "",
     "1: fabric is missing; accepted: a fabric, where there is more than one node", False),
    (NIC, "",
     "3: node[0].nic is missing; accepted: NICs, where there is a fabric", False),
    ("aggregations = 2", "aggregations = 2\ncores = 3",
     "17: fabric.cores = 3; accepted: a multiple of aggregations, 2", False),
    ("aggregations = 2", "aggregations = 2\ncores = 4",
     "13: fabric.core_link is missing; accepted: a table, where there are cores", False),
    ("aggregations = 2", "aggregations = 2\ntors_per_pod = 1",
     "13: fabric.cores is missing; accepted: a multiple of aggregations, 2, to join 2 pods", False),
    ("aggregations = 2", "aggregations = 2\ncore_oversubscription = 2",
     "17: fabric.core_oversubscription stands without cores; accepted: with at least 1 of them", False),
    ('uplink = { delay = "1 us" }', 'oversubscription = 2\nuplink = { type = "ConnectX-7" }',
     "17: fabric.oversubscription stands beside a bandwidth of uplink; accepted: one of them", False),
    ("aggregations = 2", "aggregations = 2\noversubscription = -2",
     "17: fabric.oversubscription = -2; accepted: a number above 0, at most 1e+06", True),
    (FABRIC, '[fabric]\nkind = "rail"\nspines = 0\nuplink = { delay = "1 us" }\n',
     "16: fabric.uplink stands without spines; accepted: with at least 1 of them", False),
    (FABRIC, '[fabric]\nkind = "rail"\nspines = 2\n',
     "13: fabric.uplink is missing; accepted: a table, where there are spines", False),
    (FABRIC, '[fabric]\nkind = "rail"\nspines = 0\nnodes_per_group = 2\n',
     "15: fabric.spines = 0; accepted: at least 1, to join 2 groups", False),
    (FABRIC, '[fabric]\nkind = "mesh"\n[[node]]\ndevice = "V100"\ndevices = 1\nnic = { type = "ConnectX-7" }\n',
     '14: fabric.kind = "mesh"; accepted: where all kinds of node have the same nic.count', False),
    (FABRIC,
     '[fabric]\nkind = "mesh"\n[[node]]\ndevice = "V100"\ndevices = 1\n'
     'nic = { count = 8, type = "ConnectX-7" }\n',
     "13: fabric.link is missing; accepted: a link, where kinds of node have unlike NICs", False),
    (FABRIC, FABRIC + "[placement]\nranks = 33\n",
     "19: placement.ranks = 33; accepted: at most the 32 devices of the cluster", False),
    (FABRIC, FABRIC + '[placement]\norder = "random"\n',
     '19: placement.order = "random"; accepted: node, round_robin', True),
    (FABRIC, FABRIC + "[placement]\ndevices = [0, 1, 32]\n",
     "19: placement.devices names device 32; accepted: 0 to 31", False),
    (FABRIC, FABRIC + '[placement]\ndevices = "0-7,4"\n',
     "19: placement.devices names device 4 twice; accepted: one rank on a device", False),
    (FABRIC, FABRIC + '[placement]\ndevices = "7-0"\n',
     '19: placement.devices = "7-0"; accepted: ranges that rise; 7-0 does not', False),
    (FABRIC, FABRIC + '[placement]\ndevices = "0..7"\n',
     '19: placement.devices = "0..7"; accepted: numbers and ranges such as "0-7,16-23"', True),
    (FABRIC, FABRIC + '[placement]\nranks = 4\ndevices = "0-7"\n',
     "20: placement.devices names 8 devices; accepted: 4, as ranks says", False),
    (FABRIC, FABRIC + '[placement]\norder = "node"\ndevices = "0-7"\n',
     "19: placement.order stands beside devices; accepted: one of them", False),
    ("count = 4", "count = 4194304",
     "3: the cluster has 33554432 devices; accepted: at most 4194304", False),
    (FABRIC,
     '[fabric]\nkind = "mesh"\nlink = { type = "ConnectX-7" }\n[[node]]\ncount = 100000\n'
     'device = "V100"\ndevices = 1\nnic = { count = 8, type = "ConnectX-7" }\n',
     "3: the cluster takes 40003700144 cables; accepted: at most 33554432", False),
    (FABRIC, FABRIC + '[[site]]\nname = "a"\n',
     "18: site[0].node is missing; accepted: tables in double brackets", True),
    (FABRIC, FABRIC + '[[site_link]]\nbetween = ["a", "b"]\n',
     "18: site_link needs sites; accepted: with at least two [[site]]", False),
]  # fmt: skip

OF_SITES = [
    (SITES, SITES.replace('"switch"\n[[site.node]]', '"mesh"\n[[site.node]]\ncount = 6000'),  # each fits, not both
     "15: the cluster takes 36018000 cables; accepted: at most 33554432", False),
    ('name = "b"', 'name = "a"',
     '11: site[1].name = "a"; accepted: a name that no other site has', False),
    ('name = "b"', 'name = "b c"',
     '11: site[1].name = "b c"; accepted: 1 to 200 letters, digits, - and _', True),
    ('["a", "b"]', '["a", "c"]',
     '19: site_link[0].between = ["a", "c"]; accepted: two of a, b', False),
    ('["a", "b"]', '["a", "a"]',
     '19: site_link[0].between = ["a", "a"]; accepted: two of a, b', False),
    ('["a", "b"]', '"a"',
     '19: site_link[0].between = "a"; accepted: a list of at least one of: 1 to 200 letters, digits, - and _', True),
    (SITE_LINK, "",
     "10: no site_link joins b to a; accepted: sites that are all joined", False),
    ('[site.fabric]\nkind = "switch"\n[[site.node]]\ndevice = "V100"\ndevices = 1\n'
     'nic = { type = "ConnectX-7" }\n[[site_link]]',
     '[[site.node]]\ndevice = "V100"\ndevices = 1\n[[site_link]]',
     "10: b has no topmost switches; accepted: a fabric that has some", False),
    ('name = "sites"', 'name = "sites"\nfabric = { kind = "switch" }',
     "2: fabric stands beside site; accepted: within a [[site]]", False),
    ('delay = "1 ms"\n', "",
     "18: site_link[0].delay is missing; accepted: <TIME>; or a type", False),
]  # fmt: skip

MISTAKES = [(POD, *case) for case in OF_POD] + [(SITES, *case) for case in OF_SITES]
SYNTAX = [
    ('name = "pod"', "name = pod", 1, "name = pod"),
    ("count = 4", "count = 4\ncount = 5", 5, "count = 5"),
    ("[node.nic]", "[node.nic", 8, "[node.nic"),
    ("[fabric]", "[node]", 13, "[node]"),
    ("[[node]]", "node = []\n[other]", 9, "[node.nic]"),
    ('{ delay = "1 us" }', '{ delay = "1 us"', 17, 'uplink = { delay = \\"1 us\\"'),
    ("count = 4", "count = " + 5000 * "9", 4, "count = " + 51 * "9" + "..."),
    ('name = "pod"', 'name = "p\x00d"', 1, "name = "),
]


def error_of(text):
    with pytest.raises(cluster.ClusterError) as caught:
        cluster.loads(text, "pod.toml")
    return caught.value


def schema():
    text = (resources.files("prismllm.cluster") / "cluster.schema.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


@pytest.mark.parametrize(("file", "old", "new", "says", "by_schema"), MISTAKES)
def test_a_mistake_is_said_in_one_line(file, old, new, says, by_schema):
    text = file.replace(old, new, 1)
    assert text != file
    for short, long in LONG.items():
        says = says.replace(short, long)
    error = error_of(text)
    assert str(error) == f"pod.toml:{says}"
    assert isinstance(error, ValueError) and (error.file, error.line) == ("pod.toml", int(says.split(":")[0]))
    assert schema().is_valid(lines.tomllib.loads(text)) != by_schema


@pytest.mark.parametrize(("old", "new", "line", "source"), SYNTAX)
def test_text_that_is_no_toml_is_shown_with_its_line(old, new, line, source):
    error = str(error_of(POD.replace(old, new, 1)))
    assert error.startswith(f"pod.toml:{line}: ") and f', in "{source}' in error and error.endswith("; accepted: TOML")


def test_files_without_mistakes_are_valid_for_both():
    for text in (POD, SITES):
        cluster.loads(text).graph()
        schema().validate(lines.tomllib.loads(text))


def test_the_schema_is_made_from_the_parsers_keys():
    from prismllm.cluster.schema import as_text

    assert (resources.files("prismllm.cluster") / "cluster.schema.json").read_text(encoding="utf-8") == as_text()
    jsonschema.Draft202012Validator.check_schema(json.loads(as_text()))


def test_the_documentation_lists_every_key_with_its_default_and_runs(repository, monkeypatch):
    monkeypatch.chdir(repository)
    assert doctest.testfile("docs/clusters.md", module_relative=False).failed == 0
    text = (repository / "docs/clusters.md").read_text()

    def rows(form):
        for part in (getattr(form, name, None) for name in ("of", "first", "second")):
            if isinstance(part, Form):
                yield from rows(part)
        tables = form.kinds.values() if isinstance(form, ByKind) else [form.keys] if isinstance(form, Table) else []
        for keys in tables:
            for name, key in keys.items():
                default = key.otherwise if key.default is None else f"`{key.default}`"
                default = "required" if key.required else str(key.default) if isinstance(key.default, int) else default
                yield name, default, key.text
                yield from rows(key.form)

    wanted = set(rows(file_form()))
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert wanted <= {
        (line[0].strip("| `"), line[2].strip(), line[3].removesuffix(" |")) for line in lines if len(line) == 4
    }


@pytest.mark.parametrize("path", sorted((Path(__file__).resolve().parents[2] / "examples/clusters").glob("*.toml")))
def test_examples_are_valid_and_have_graphs(path):
    schema().validate(lines.tomllib.loads(path.read_text()))
    found = cluster.load(path)
    graph = found.graph()
    assert found.name and graph.links > 0 and len(graph.endpoint) == found.ranks


@given(st.integers(0, 10**9))
def test_no_damage_to_a_file_is_more_than_an_error_with_a_line(seed):
    """What a slip of the hand makes: characters deleted, doubled, exchanged."""
    draw = random.Random(seed)
    text = draw.choice([POD, SITES])
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(text))
        text = (
            text[:at]
            + draw.choice(["", 2 * text[at], draw.choice('0-"[]{}=.,#\n\\é'), text[at : at + 9]])
            + text[at + 1 :]
        )
    try:
        cluster.loads(text, "pod.toml")
    except cluster.ClusterError as error:
        assert 1 <= error.line <= text.count("\n") + 1 and "\n" not in str(error)
        assert str(error).startswith(f"pod.toml:{error.line}: ")


# --- files


def test_a_file_that_is_not_there_is_an_os_error_and_a_folder_a_cluster_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        cluster.load(tmp_path / "none.toml")
    with pytest.raises(cluster.ClusterError, match=":1: is not a regular file"):
        cluster.load(tmp_path)


def test_text_in_another_encoding_is_said_with_its_line(tmp_path):
    (tmp_path / "x.toml").write_bytes(b'# one\nname = "caf\xe9"\n')
    with pytest.raises(cluster.ClusterError, match=r"x\.toml:2: byte 0xe9 is not UTF-8; accepted: UTF-8 text"):
        cluster.load(tmp_path / "x.toml")


def test_lines_may_end_as_on_windows_and_a_byte_order_mark_is_passed_over(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf" + POD.replace("\n", "\r\n").encode())
    assert cluster.load(tmp_path / "x.toml").ranks == 32
    (tmp_path / "x.toml").write_bytes(POD.replace("count = 4", "count = 0").replace("\n", "\r\n").encode())
    with pytest.raises(cluster.ClusterError, match=r"x\.toml:4: "):
        cluster.load(tmp_path / "x.toml")


def test_a_device_may_be_like_another_but_for_some_figures():
    like = '{ name = "H100 with more memory", like = "H100-SXM", memory = "96 GB", scale_up_bandwidth = "600 GB/s" }'
    found = cluster.loads(POD.replace('"H100-SXM"', like))
    device, other = found.device_of(0), cluster.devices()["H100-SXM"]
    assert (device.memory_bytes, device.bf16_flops, device.name) == (96e9, other.bf16_flops, "H100 with more memory")
    assert found.graph().bytes_per_second[0] == 600e9
    own = '{ name = "mine", memory = "8 GiB", memory_bandwidth = "100 GB/s", pcie = 3 }'
    device = cluster.loads(POD.replace('"H100-SXM"', own)).device_of(31)
    assert (device.memory_bytes, device.fp8_flops, device.scale_up_link) == (8 << 30, 0, "PCIe3")
    assert device.scale_up_bytes_per_second == 16e9 and device.source == "cluster file"
