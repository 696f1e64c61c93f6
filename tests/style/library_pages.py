#!/usr/bin/env python3
"""What tierd.h declares stands in the manual pages: each structure in one of them, as it is declared, with an entry for
each field and the value that its macro gives it; each parameter that may be NULL in the page of its function; each
option of a job in what is said, and tested, of who resumes one; each constant of an enum in some page. And the
docs/c.md's code is that of examples/minimal.c."""
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
header = open("client/tierd.h").read()
pages = {name: open(f"docs/man/{name}").read() for name in sorted(os.listdir("docs/man")) if name.endswith(".3")}
missing = []


def require(condition, what):
    if not condition:
        missing.append(what)


def declarations(text):
    """Lines, without comments and the space that lines them up."""
    lines = (" ".join(line.split()) for line in re.sub(r"/\*.*?\*/", "", text, flags=re.S).split("\n"))
    return [line for line in lines if line]


def fields(lines):
    names = [name.strip() for line in lines for name in line.rstrip(";").split(",")]
    return [re.search(r"(\w+)(\[\w+\]|\)\(.*\))?$", name)[1] for name in names]


def defaults(struct):
    """The values of a structure's macro, as the pages write them; None: it has no macro."""
    macro = re.search(r"#define \w+_INIT \{ sizeof\(struct %s\),(.*?) \}\n" % struct, header.replace("\\\n", ""))
    if not macro:
        return None
    values = [" ".join(value.split()) for value in re.split(r",(?![^{]*\})", macro[1])]
    return [re.sub(r"^(-?\d[\d.]*(e-?\d+)?)f$", r"\1", value).removesuffix(".0") for value in values]


def check_structure(struct, text):
    lines = declarations(text)
    owners = [name for name in pages if f"struct {struct} {{\n" in pages[name]]
    require(len(owners) == 1, f"struct {struct} stands in {owners or 'no page'}, not in one")
    for owner in owners[:1]:
        page = pages[owner]
        shown = page.split(f"struct {struct} {{\n")[1].split("};")[0]
        require(declarations(shown) == lines, f"struct {struct} is declared otherwise in {owner}")
        names, values = fields(lines), defaults(struct)
        if names[0] == "size":
            require(".It Va size\n" in page, f"no size of struct {struct} in {owner}")
            names = names[1:]
        require(values is None or len(values) == len(names), f"the macro of struct {struct} has {values}")
        for name, value in zip(names, values or [None] * len(names)):
            entry = f".It Va {name}" if value is None else f".It Va {name} No = Li {value}"
            require(f"{entry}\n" in page.replace("\\&", ""), f"no '{entry}' in {owner}")


def check_null(function, text):
    lines = pages.get(f"{function}.3", "").split(".Sh DESCRIPTION\n")[-1].split("\n")
    for name in re.findall(r"(\w+) /\* or NULL", text):
        places = [i for i, line in enumerate(lines) if re.match(rf"\.Fa {name}\b", line)]
        require(any(".Dv NULL" in line for i in places for line in lines[max(i - 4, 0):i + 5]),
                f"what NULL is as {name} is not in {function}(3)")


def check_options(names):
    said = pages["tierd_job_options.3"].split(".Ss What may differ\n")[1]
    said = {name for line in re.findall(r"^\.It Va (.*)$", said, re.M) for name in line.split(" , ")}
    tested = open("tests/functional/resuming.c").read()
    for name in names:
        require(name in said, f"whether {name} may differ is not in tierd_job_options(3)")
        if name not in ("name", "rank", "gpu"):
            require(f"OPTION({name}," in tested, f"whether {name} may differ is not in tests/functional/resuming.c")


def check_readme():
    program = {line.strip() for line in open("examples/minimal.c")}
    section = open("docs/c.md").read().split("## What a trainer looks like\n")[1].split("\n## ")[0]
    for line in "".join(block.split("```")[0] for block in section.split("```c\n")[1:]).split("\n"):
        require(line.strip() in program or line.strip() in ("", "…"), f"docs/c.md has '{line.strip()}', and minimal.c has not")


structures = re.findall(r"^struct (\w+) \{\n(.*?)^\};", header, re.S | re.M)
for struct, text in structures:
    check_structure(struct, text)
for function, text in re.findall(r"^\w[\w \*]*?(tierd_\w+)\(([^;{]*)\);", header, re.M):
    check_null(function, text)
for constant in re.findall(r"^\t(TIERD_\w+)(?: = \w+)?,", header, re.M):
    require(any(re.search(rf"\b{constant}\b", page) for page in pages.values()), f"{constant} is in no page")
check_options(fields(declarations(dict(structures)["tierd_job_options"]))[1:])
check_readme()
require(len(open("examples/minimal.c").readlines()) <= 150, "examples/minimal.c has more than 150 lines")
print("\n".join(missing))
sys.exit(bool(missing))
