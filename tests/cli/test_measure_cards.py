#!/usr/bin/env python3
"""scripts/measure-cards and scripts/plot-cards on emulated cards: every configuration is there, the numbers fit each
other, the plot is XML with a mark for each. Speeds are not looked at."""
import json
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

sys.path.insert(0, "tests/lib")
from conclave import DEMO, Checks, build_folder  # noqa: E402

check = Checks()
with tempfile.TemporaryDirectory() as d:
    out, plot = os.path.join(d, "n.json"), os.path.join(d, "p.svg")
    p = subprocess.run(["scripts/measure-cards", DEMO + "/story-moe-q4_k_m.gguf", "--build", build_folder(), "--cards",
                        "emu:1", "emu:3", "--part", "20", "--tokens", "24", "--heat-tokens", "24", "--rounds", "1", "--startup",
                        "--out", out], capture_output=True, text=True)
    if check(p.returncode == 0, "measure-cards: %s" % p.stderr[-500:]):
        with open(out) as f:
            s = json.load(f)
        rows = {(r["cards"], r["part"]): r for r in s["rows"]}
        check(sorted(rows) == [("emu:1", 20), ("emu:1", 100), ("emu:3", 60), ("emu:3", 100), ("none", 0)],
              "configurations: %s" % sorted(rows))
        check(rows["none", 0]["hits"] == 0 and rows["emu:1", 100]["hits"] == 1, "hits: %s" % rows)
        check(.1 < rows["emu:1", 20]["cached"] <= .3 and .45 < rows["emu:3", 60]["cached"] <= .75, "cached: %s" % rows)
        check(0 < rows["emu:1", 20]["hits"] < 1, "hits of a part: %s" % rows["emu:1", 20])
        check(set(s["startup"]) == {"emu:1", "emu:3"}, "starts: %s" % s["startup"])
        check(all(x["uploaded"] > 0 and x["GB_per_s_all"] > 0 and x["first_token_s"] > 0 for x in s["startup"].values()),
              "starts: %s" % s["startup"])
        p = subprocess.run(["scripts/plot-cards", out, "-o", plot], capture_output=True, text=True)
        if check(p.returncode == 0, "plot-cards: %s" % p.stderr[-500:]):
            marks = xml.dom.minidom.parse(plot).getElementsByTagName("circle")
            check(len(marks) == 3 * 4, "%d marks" % len(marks))
check.end()
