"""What the last bits of a run depend on."""

import re

from dna.runs.reproducibility import changes, processor

INFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu sse sse2 avx avx2 fma avx512f ibrs

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd sve bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_processors_of_one_name_are_told_apart():
    one = processor(INFO)
    kind = r"AMD EPYC \(family 25, model 17, vector instructions [0-9a-f]{8}\)"
    assert re.fullmatch(kind, one)
    assert processor(INFO.replace("ibrs", "ibrs ibpb")) == one  # protections of the kernel
    others = [
        INFO.replace("model\t\t: 17", "model\t\t: 1"),
        INFO.replace("family\t: 25", "family\t: 26"),
        INFO.replace(" avx512f", ""),
    ]
    assert len({one, *map(processor, others)}) == 4
    assert changes({"cpu": one}, {"cpu": processor(others[0])}) == [
        f"cpu was {one}, now {processor(others[0])}"
    ]


def test_processors_without_a_name_and_systems_without_the_file():
    assert re.search(
        r"\(implementer 0x41, part 0xd40, vector instructions \w+\)", processor(ARM)
    )
    assert processor(ARM) != processor(ARM.replace(" sve", ""))
    assert "(" not in processor("")
