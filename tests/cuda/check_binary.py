"""Proves of compiled CUDA kernels what their bits and their speed rest on, and prints what each of them costs.

usage: check_binary.py FILE...   (objects, archives or libraries that nvcc made)

Fails if a kernel uses local memory (a stack or spilled registers), calls anything, or holds a floating-point
instruction other than the exact or correctly rounded ones listed below: no approximate one, none that flushes
subnormals, no fused multiply-add of floats. nvcc makes such instructions from more than -use_fast_math: an integer
division starts from an approximate reciprocal and calls a routine.

The columns "a pair-row" are the double operations and the conversions that a range kernel spends on two elements (sine
and cosine) of one row, anchors included, counted in its loops.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# Comparisons, selections and moves included. I2F and F2I with doubles: of 64-bit integers, rounded once or truncated.
ALLOWED_FLOAT = re.compile(
    r"""(D(ADD|MUL|FMA)|F(ADD|MUL))
      | D(SETP|MNMX)(\.[A-Z]+)* | F(SETP|SEL|MNMX)(\.(?!FTZ)[A-Z0-9]+)*
      | F2F\.(F64\.F32|F32\.F64)
      | I2F\.F64(\.[US]\d+)? | F2I(\.[US]64)?\.F64\.TRUNC""",
    re.VERBOSE,
)
FLOAT = re.compile(r"(MUFU|[DFH](ADD|MUL|FMA|SET|MNMX|SEL|CHK|SWZ)|F2|I2F|FRND|\S*\.FTZ)")
# The idiom for loading a constant: 0 * 0 + constants, in the otherwise idle half-precision unit.
CONSTANT = re.compile(r"HFMA2\S* R\d+, -RZ, RZ, [-+\d.e]+, [-+\d.e]+")
LOCAL = re.compile(r"(LDL|STL)\b")
CALL = re.compile(r"(CALL|RET|JMX|JCAL|PRET)\b")

# Of csrc/posenc/kernels/cuda/thread.h: kPairs * kAnchors.
PAIRS_TIMES_ANCHORS = {"float64": 4, "float32": 8, "bfloat16": 8, "float16": 8}
DTYPES = {"d": "float64", "f": "float32", "BFloat16": "bfloat16", "Float16": "float16"}
NAME = re.compile(r"(range|position)_kernelI(?:NS_4math\d+)?(d|f|B?Float16)E?NS1_\d+(Encode|AddDropout|Add)Row")
ALONE = re.compile(r"(dropout)_kernelI(?:NS_4math\d+)?(d|f|B?Float16)E")


@dataclass
class Instruction:
    address: int
    text: str  # without a predicate

    @property
    def opcode(self) -> str:
        return self.text.split()[0]

    @property
    def is_call(self) -> bool:
        """A call or a return; to jump over one instruction, ptxas also takes a call, which nothing returns from."""
        target = re.match(r"CALL\.REL\.NOINC 0x([0-9a-f]+)", self.text)
        return bool(CALL.match(self.text)) and not (target and int(target[1], 16) == self.address + 32)

    @property
    def welcome(self) -> bool:
        if LOCAL.match(self.text) or self.is_call:
            return False
        return not FLOAT.match(self.text) or bool(ALLOWED_FLOAT.fullmatch(self.opcode) or CONSTANT.match(self.text))


@dataclass
class Kernel:
    symbol: str
    architecture: str
    registers: int = -1
    stack: int = -1
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def parts(self) -> re.Match[str] | None:
        return NAME.search(self.symbol)

    @property
    def name(self) -> str:
        if self.parts is None:
            alone = ALONE.search(self.symbol)
            return self.symbol if alone is None else f"{alone[1]}, {DTYPES[alone[2]]}"
        mapping, dtype, row = self.parts.groups()
        return f"{row.lower()}, {mapping}, {DTYPES[dtype]}"

    @property
    def spills(self) -> int:
        return sum(1 for i in self.instructions if LOCAL.match(i.text))

    def count(self, *opcodes: str) -> int:
        return sum(1 for i in self.instructions if i.opcode.startswith(opcodes))

    def violations(self) -> list[str]:
        found = []
        if self.stack != 0:
            found.append(f"{self.stack} bytes of stack or local memory")
        unwelcome = Counter(instruction.opcode for instruction in self.instructions if not instruction.welcome)
        return found + [f"{number} {opcode}" for opcode, number in sorted(unwelcome.items())]

    def loops(self) -> list[tuple[int, int]]:
        """First and last address of each, by the branches that go back."""
        ranges = []
        for instruction in self.instructions:
            target = re.match(r"BRA\b.*?\b0x([0-9a-f]+)", instruction.text)
            if target and int(target[1], 16) < instruction.address:
                ranges.append((int(target[1], 16), instruction.address))
        return ranges

    def per_pair_row(self, *opcodes: str) -> float | None:
        """How often a range kernel runs these for a pair of one row.

        That is 17 times what stands in the loop over steps and once what stands before it, without what a loop inside
        repeats for each entry of the batch.
        """
        if self.parts is None or self.parts[1] != "range":
            return None
        fma = [i.address for i in self.instructions if i.opcode == "DFMA"]
        with_fma = [loop for loop in self.loops() if any(loop[0] <= a <= loop[1] for a in fma)]
        if len(with_fma) != 2:
            return None
        steps, threads = sorted(with_fma, key=lambda loop: loop[1] - loop[0])
        inner = [loop for loop in self.loops() if steps[0] <= loop[0] and loop[1] < steps[1]]
        total = 0
        for instruction in self.instructions:
            at = instruction.address
            if not instruction.opcode.startswith(opcodes) or any(a <= at <= b for a, b in inner):
                continue
            total += 17 if steps[0] <= at <= steps[1] else threads[0] <= at <= threads[1]
        return total / (32 * PAIRS_TIMES_ANCHORS[DTYPES[self.parts[2]]])


def tool_path() -> str:
    """A PATH with cuobjdump and nvdisasm, which it runs: also from beside nvcc and from packages of PyPI."""
    folders = [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    if nvcc := shutil.which("nvcc"):
        folders += [Path(nvcc).parent, Path(nvcc).resolve().parent]
    folders += [folder for path in sys.path for folder in Path(path).glob("nvidia/cu*/bin")]
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, folders)])
    for tool in ("cuobjdump", "nvdisasm"):
        if shutil.which(tool, path=search) is None:
            sys.exit(
                f"posenc: check_binary must find {tool}, but it is neither on PATH nor beside nvcc. "
                f"Run: pip install nvidia-cuda-{tool}"
            )
    return search


def read_kernels(file: str) -> list[Kernel]:
    """Every kernel of a file, for each architecture that it was compiled for."""
    path = tool_path()
    tool = str(shutil.which("cuobjdump", path=path))

    def dump(option: str) -> list[str]:
        return subprocess.run(
            [tool, option, file], check=True, text=True, stdout=subprocess.PIPE, env=os.environ | {"PATH": path}
        ).stdout.splitlines()

    kernels: dict[tuple[str, str], Kernel] = {}
    architecture, kernel = "", None
    for line in dump("-sass"):
        if found := re.match(r"arch = (\w+)", line):
            architecture, kernel = found[1], None
        elif found := re.search(r"Function : (\S+)", line):
            kernel = kernels.setdefault((architecture, found[1]), Kernel(found[1], architecture))
        elif kernel and (found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(.*?)\s*;", line)):
            kernel.instructions.append(Instruction(int(found[1], 16), found[2]))
    for line in dump("-res-usage"):
        if found := re.match(r"arch = (\w+)", line):
            architecture, kernel = found[1], None
        elif found := re.search(r"Function (\S+?):$", line):
            kernel = kernels.get((architecture, found[1]))
        elif kernel and (found := re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", line)):
            kernel.registers, kernel.stack = int(found[1]), int(found[2]) + int(found[3])
    return list(kernels.values())


HEADER = """\
| kernel | arch | registers | stack | spills | DFMA | DMUL | DADD | F2F | double a pair-row | F2F a pair-row |
|---|---|---|---|---|---|---|---|---|---|---|"""


def table_row(kernel: Kernel) -> str:
    rates = [kernel.per_pair_row("DFMA", "DMUL", "DADD"), kernel.per_pair_row("F2F")]
    cells = [
        kernel.name,
        kernel.architecture,
        kernel.registers,
        kernel.stack,
        kernel.spills,
        *(kernel.count(opcode) for opcode in ("DFMA", "DMUL", "DADD", "F2F")),
        *("" if rate is None else f"{rate:.2f}" for rate in rates),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main(files: list[str]) -> int:
    kernels = [kernel for file in files for kernel in read_kernels(file)]
    kernels.sort(key=lambda kernel: (kernel.name, int(re.sub(r"\D", "", kernel.architecture))))
    print(HEADER)
    for kernel in kernels:
        print(table_row(kernel))
    print()
    failed = [(kernel, problem) for kernel in kernels for problem in kernel.violations()]
    for kernel, problem in failed:
        print(f"FAILED {kernel.name} for {kernel.architecture}: {problem}")
    print(f"check_binary: {len(kernels)} kernels, {len(failed)} violations")
    return 1 if failed or not kernels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
