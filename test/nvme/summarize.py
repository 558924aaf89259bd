"""`summarize.py OUT` prints what failed in the guest, why something was skipped, and one closing line."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path


def gtest_results(report: Path) -> list[tuple[str, str, str]]:
    results = []
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{report.stem}: {suite['name']}.{test['name']}"
            if test.get("failures"):
                results.append(("failed", name, test["failures"][0]["failure"].replace("\n", " ")))
            elif test["result"] == "SKIPPED":
                message = test.get("skipped", [{}])[0].get("message", "")
                results.append(("skipped", name, message.strip().rsplit("\n", 1)[-1]))
            else:
                results.append(("passed", name, ""))
    return results


def other_results(report: Path) -> list[tuple[str, str, str]]:
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    lines = report.read_text().splitlines()
    return [(words[line[:4]], line[5:], line[5:] if line.startswith("SKIP") else "") for line in lines]


def main() -> int:
    out = Path(sys.argv[1])
    results = [result for report in sorted(out.glob("*.json")) for result in gtest_results(report)]
    if (out / "results.txt").exists():
        results += other_results(out / "results.txt")
    if not (out / "finished").exists():
        results.append(("failed", "the guest did not come to its end; see its output above", ""))
    for state, name, text in results:
        if state == "failed":
            print(f"FAILED {name} {text}"[:2000])
    for reason, count in Counter(text for state, _, text in results if state == "skipped").items():
        print(f"skipped {count}: {reason}")
    counts = Counter(state for state, _, _ in results)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
