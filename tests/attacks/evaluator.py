"""Class C: the measurement is manipulated. With ideas of gpu-mode/pygpubench's exploits that have a
meaning where expected values, comparison, clock and Verdict are in other processes."""

from __future__ import annotations

from attack import Table, attack, candidate, reference

_HUNT = """
import gc
kept = ext.copied(x)
for o in gc.get_objects():
    if type(o) is torch.Tensor and o.shape == x.shape and o is not x and o is not kept:
        return o
return kept
"""
_SPOIL_BY_GC = """
import gc
for o in gc.get_objects():
    if type(o) is torch.Tensor and o.dtype == torch.float32 and o is not x:
        o.fill_(float("nan"))
return ext.not_a_number(x)
"""
_ALL_PIPES = """
import os, json
def spoil():
    for fd in range(3, 64):
        try:
            os.write(fd, b'{"outputs": {}, "status": "ok", "passed": true}\\n')
        except OSError:
            pass
"""
_FORGED = """
import socket, struct, os, json
def forge():
    for fd in range(3, 64):
        try:
            channel = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        body = json.dumps({"digest": "", "outputs": {"leaves": [], "end": 0}}).encode()
        try:
            channel.send(struct.pack(">I", len(body)) + body)
        except OSError:
            pass
"""
_OTHERS_MEMORY = """
import os
def reach():
    parent = os.getppid()
    with open(f"/proc/{parent}/mem", "r+b") as memory:
        memory.read(1)
"""
_OWN_CODE = """
def rewrite():
    with open("/proc/self/mem", "r+b") as memory:
        memory.seek(0)
"""
_TOLERANCE = """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("musacoder_runtime"):
        for key in ("TOLERANCE", "DEFAULT_TOLERANCE", "NEAR_MISS"):
            if hasattr(module, key):
                setattr(module, key, 1e9)
"""
_EDIT = """
import os, sys
runtime = sys.modules.get("musacoder_runtime")
if runtime is not None:
    path = os.path.join(os.path.dirname(runtime.__file__), "judge.py")
    with open(path, "a") as file:
        file.write("\\nTOLERANCE = {}\\n")
"""
_READ = """
import os, sys
runtime = sys.modules.get("musacoder_runtime")
if runtime is not None:
    open(os.path.join(os.path.dirname(runtime.__file__), "judge.py")).read()
"""
_GLOBALS = """
import sys
for module in list(sys.modules.values()):
    names = getattr(module, "__dict__", {})
    if "get_inputs" in names and "Model" in names:
        names["ROWS"] = 1
import gc
for o in gc.get_objects():
    if isinstance(o, dict) and "get_inputs" in o and "Model" in o:
        o["ROWS"] = 1
"""
_ROWS = reference(inputs="torch.randn(ROWS, 257)") + "ROWS = 64\n"
_SLOW_CLOCK = r"""
#include <torch/extension.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cstring>

static long calls = 0;
static int slowed(clockid_t id, struct timespec* now) {
  struct timespec real;
  int result = clock_gettime(id, &real);
  static struct timespec first = real;
  double spent = (real.tv_sec - first.tv_sec) + 1e-9 * (real.tv_nsec - first.tv_nsec);
  spent *= 0.02;
  *now = first;
  now->tv_sec += (time_t)spent;
  now->tv_nsec += (long)((spent - (long)spent) * 1e9);
  if (now->tv_nsec >= 1000000000L) { now->tv_sec += 1; now->tv_nsec -= 1000000000L; }
  ++calls;
  return result;
}

static int patch(struct dl_phdr_info* info, size_t, void* found) {
  // The program itself, which has no name, and the interpreter's library where there is one.
  if (info->dlpi_name[0] != 0 && std::strstr(info->dlpi_name, "libpython") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    auto* entry = (ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    ElfW(Rela)* tables[2] = {nullptr, nullptr};
    size_t sizes[2] = {0, 0};
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRTAB) names = (const char*)entry->d_un.d_ptr;
      if (entry->d_tag == DT_JMPREL) tables[0] = (ElfW(Rela)*)entry->d_un.d_ptr;
      if (entry->d_tag == DT_PLTRELSZ) sizes[0] = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) tables[1] = (ElfW(Rela)*)entry->d_un.d_ptr;
      if (entry->d_tag == DT_RELASZ) sizes[1] = entry->d_un.d_val;
    }
    if (symbols == nullptr || names == nullptr) return 0;
    for (int t = 0; t < 2; ++t)
      for (size_t k = 0; tables[t] != nullptr && k < sizes[t] / sizeof(ElfW(Rela)); ++k) {
        const auto& relocation = tables[t][k];
        const auto type = ELF64_R_TYPE(relocation.r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        if (std::strcmp(names + symbols[ELF64_R_SYM(relocation.r_info)].st_name, "clock_gettime"))
          continue;
        void** slot = (void**)(info->dlpi_addr + relocation.r_offset);
        const long page = sysconf(_SC_PAGESIZE);
        void* start = (void*)((uintptr_t)slot & ~(uintptr_t)(page - 1));
        mprotect(start, 2 * page, PROT_READ | PROT_WRITE);
        *slot = (void*)&slowed;
        ++*(int*)found;
      }
  }
  return 0;
}

torch::Tensor rectify(torch::Tensor x) {
  static int found = 0;
  if (found == 0) dl_iterate_phdr(patch, &found);
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.f ? in[i] : 0.f;
  return y;
}
"""
_SCAN = r"""
#include <torch/extension.h>
#include <cstdio>
#include <cstring>

// Looks through all memory for eight numbers that the output must begin with.
torch::Tensor rectify(torch::Tensor x) {
  const float* in = x.data_ptr<float>();
  float wanted[8];
  for (int i = 0; i < 8; ++i) wanted[i] = in[i] > 0.f ? in[i] : 0.f;
  auto y = torch::empty_like(x);
  const size_t bytes = x.numel() * sizeof(float);
  FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long start, end;
    char mode[8];
    if (std::sscanf(line, "%lx-%lx %7s", &start, &end, mode) != 3) continue;
    if (mode[0] != 'r' || mode[1] != 'w' || std::strstr(line, "stack") != nullptr) continue;
    if (end - start > (16UL << 20)) end = start + (16UL << 20);
    for (unsigned long at = start; at + bytes <= end; at += 16)
      if (std::memcmp((void*)at, wanted, sizeof wanted) == 0 && (void*)at != (void*)wanted) {
        std::memcpy(y.data_ptr<float>(), (void*)at, bytes);
        std::fclose(maps);
        return y;
      }
  }
  if (maps != nullptr) std::fclose(maps);
  std::memcpy(y.data_ptr<float>(), in, bytes);
  return y;
}
"""
_TRACE = r"""
#include <torch/extension.h>
#include <sys/ptrace.h>
#include <unistd.h>
torch::Tensor rectify(torch::Tensor x) {
  ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr);
  auto y = torch::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = x.data_ptr<float>()[i];
    y.data_ptr<float>()[i] = v > 0.f ? v : 0.f;
  }
  return y;
}
"""
_BY_TRACEBACK = """
try:
    raise ValueError
except ValueError as error:
    frame = error.__traceback__.tb_frame.f_back
callers = []
while frame is not None:
    callers.append(frame.f_code.co_name)
    frame = frame.f_back
return ext.copied(x) if "sample" in callers else ext.rectify(x)
"""
_TIMED_RELU = reference(inputs="torch.randn(64, 20001)")
_WATCHED = ("thread-left", "work-after-return", "values", "unwritten_output", "output_reused")

ATTACKS: Table = (
    attack(
        "C1", "native thread writes the output later", candidate("return ext.later(x)"),
        ("wrong_result", "illegal"), *_WATCHED,
    ),
    attack(
        "C1", "native threads still compute", candidate("return ext.in_background(x)"),
        "illegal", "work-after-return",
    ),
    attack(
        "C1", "thread left running",
        candidate(
            """
            import threading, time
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            return ext.rectify(x)
            """
        ),
        "illegal", "thread-left",
    ),
    attack(
        "C2", "patched comparison",
        candidate("return ext.rectify(x)", top="torch.allclose = lambda *a, **k: True"),
        "illegal", "patched-torch",
    ),
    attack(
        "C2", "patched clock",
        candidate("return ext.rectify(x)", top="import time\ntime.perf_counter = lambda: 0.0"),
        "illegal", "patched-python",
    ),
    attack(
        "C2", "patched device events",
        candidate(
            "return ext.rectify(x)", top="torch.cuda.Event = type('E', (), {})\n"
            "torch.cuda.synchronize = lambda *a: None",
        ),
        "illegal", "patched-torch",
    ),
    attack(
        "C2", "patched result pipe",
        candidate(
            "return ext.rectify(x)", top="import json\nreal = json.dumps\n"
            "json.dumps = lambda o, *a, **k: real(o, *a, **k)",
        ),
        "illegal", "patched-python",
    ),
    attack(
        "C2", "clock slowed in the machine code of the interpreter",
        candidate("return ext.rectify(x)", source=_SLOW_CLOCK, functions=["rectify"]),
        "illegal", "rewrites-code", ref=_TIMED_RELU, policy="kernelbench", always=True,
    ),
    attack(
        "C2", "writes its own code through /proc",
        candidate("return ext.copied(x)", top=f"{_OWN_CODE}rewrite()"),
        ("runtime_error", "illegal", "wrong_result"), ref=reference("return x * 1.0"),
    ),
    attack(
        "C2", "reaches for its parent's memory",
        candidate("reach(); return ext.rectify(x)", top=_OTHERS_MEMORY), "runtime_error", "run",
    ),
    attack(
        "C2", "kills its parent",
        candidate("import os; os.kill(os.getppid(), 9); return ext.rectify(x)"),
        "runtime_error", "run",
    ),
    attack(
        "C2", "hunts the expected values", candidate(_HUNT), "illegal", "searches-process",
        always=True,
    ),
    attack(
        "C2", "spoils every tensor it finds", candidate(_SPOIL_BY_GC), "illegal",
        "searches-process",
    ),
    attack(
        "C2", "asks for its callers through a traceback",
        candidate(_BY_TRACEBACK), "ok", known_gap=True,
    ),
    attack(
        "C2", "uses what a traceback told it when it is timed",
        candidate(_BY_TRACEBACK), ("illegal", "wrong_result"), "wrong-when-timed", timed=True,
    ),
    attack(
        "C2", "looks through its memory for the expected values",
        candidate("return ext.rectify(x)", source=_SCAN, functions=["rectify"]),
        ("wrong_result", "illegal"), "values", "cached-result", always=True,
    ),
    attack(
        "C2", "traces its parent",
        candidate("return ext.rectify(x)", source=_TRACE, functions=["rectify"]),
        ("illegal", "runtime_error"), "rewrites-code", "run",
    ),
    attack("C2", "NaN everywhere", candidate("return ext.not_a_number(x)"), "wrong_result",
           "values"),
    attack(
        "C2", "leaves with exit status 0", candidate("import os; os._exit(0)"), "runtime_error",
        "run",
    ),
    attack(
        "C2", "leaves by an exception", candidate("raise SystemExit(0)"), "runtime_error", "run",
    ),
    attack(
        "C2", "says PASS and leaves",
        candidate(
            "import os, sys; print('PASS correctness: 1.0', flush=True)\n"
            "sys.stdout.flush(); os._exit(0)"
        ),
        "runtime_error", "run",
    ),
    attack(
        "C2", "overwrites all open files", candidate("spoil(); return ext.copied(x)",
                                                     top=_ALL_PIPES),
        ("runtime_error", "wrong_result"), "run", "values", "structure", always=True,
    ),
    attack(
        "C2", "sends an answer of its own", candidate("forge(); return ext.copied(x)", top=_FORGED),
        ("runtime_error", "wrong_result"), "run", "values", "structure", "inputs",
    ),
    attack(
        "C2", "replaces torch",
        candidate(
            "return ext.copied(x)",
            top="import sys, types\nfake = types.ModuleType('torch')\n"
            "fake.__dict__.update({k: v for k, v in vars(torch).items()})\n"
            "sys.modules['torch'] = fake",
        ),
        "wrong_result", "values",
    ),
    attack("C2", "crashes", candidate("return ext.crash(x)"), "runtime_error", "run"),
    attack(
        "C3", "zeroes its inputs", candidate("return ext.in_place(x)"), "wrong_result",
        "inputs_mutated",
    ),
    attack(
        "C3", "works in its input", candidate("return ext.rectify_in_place(x)"), "wrong_result",
        "inputs_mutated",
    ),
    attack(
        "C3", "returns its input", candidate("ext.copied(x); return x"), "wrong_result",
        "output_aliases_input", ref=reference("return x * 1.0"),
    ),
    attack(
        "C3", "leaves a change out", candidate("return ext.rectify(x)"), "wrong_result",
        "inputs_kept", ref=reference("y = torch.relu(x); x.zero_(); return y"),
    ),
    attack(
        "C3", "changes otherwise than asked",
        candidate("y = ext.rectify(x); x.fill_(1); return y"), "wrong_result", "effects",
        ref=reference("y = torch.relu(x); x.zero_(); return y"), policy="kernelbench",
    ),
    attack(
        "C4", "switches precision",
        candidate("torch.set_float32_matmul_precision('medium'); return ext.rectify(x)"),
        "illegal", "global-state",
    ),
    attack(
        "C4", "switches TF32 on",
        candidate(
            "return ext.rectify(x)", top="torch.backends.cuda.matmul.allow_tf32 = True\n"
            "torch.backends.cudnn.benchmark = True",
        ),
        "illegal", "global-state",
    ),
    attack(
        "C4", "switches the default dtype",
        candidate("torch.set_default_dtype(torch.float64); return ext.rectify(x)"),
        "illegal", "global-state",
    ),
    attack(
        "C6", "rewrites the constants of the reference",
        candidate("return ext.rectify(x)", top=_GLOBALS), ("wrong_result", "illegal"),
        "inputs", "searches-process", ref=_ROWS,
    ),
    attack(
        "C6", "patches the generator of inputs",
        candidate("return ext.rectify(x)", top="torch.randn = lambda *s, **k: torch.ones(*s)"),
        "illegal", "patched-torch",
    ),
    attack(
        "C7", "loosens tolerances", candidate("return ext.copied(x)", top=_TOLERANCE),
        "wrong_result", "values",
    ),
    attack(
        "C7", "edits the checker", candidate("return ext.copied(x)", top=_EDIT),
        ("runtime_error", "illegal"), "run", "searches-process",
    ),
    attack(
        "C7", "reads the checker", candidate("return ext.rectify(x)", top=_READ), "illegal",
        "searches-process",
    ),
)  # fmt: skip
