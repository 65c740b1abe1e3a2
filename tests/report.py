"""Adds up JUnit files: what failed, why tests were skipped, and one closing line.

usage: report.py FILE...

Exits with 1 if a test failed, if a file is missing or unreadable, or if nothing ran.
"""

import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path


def skip_reason(case: ET.Element) -> str:
    """pytest keeps the reason in the message; ctest keeps what GTEST_SKIP() printed in the output."""
    text = case.findtext("system-out") or ""
    from_gtest = re.search(r": Skipped\n(.*?)\n\n?\[ ", text, re.DOTALL)
    if from_gtest:
        return " ".join(from_gtest[1].split()) or "no reason given"
    return case.find("skipped").get("message") or "no reason given"


def main(paths: list[str]) -> int:
    passed, failed, skips = 0, [], Counter()
    for path in paths:
        try:
            cases = list(ET.parse(path).iter("testcase"))
        except (OSError, ET.ParseError) as error:
            failed.append(f"{path}: no result of this runner: {error}")
            continue
        if not cases:
            failed.append(f"{path}: this runner ran nothing")
        for case in cases:
            name, group = case.get("name"), case.get("classname")
            name = name if group in (None, "", name) else f"{group}.{name}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(f"{Path(path).stem}: {name}")
            elif case.find("skipped") is not None:
                skips[skip_reason(case)] += 1
            else:
                passed += 1

    print()
    for reason, count in skips.most_common():
        print(f"skipped {count:4}: {reason}")
    for name in failed:
        print(f"FAILED {name}")
    print(f"posenc: {passed} passed, {len(failed)} failed, {sum(skips.values())} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
