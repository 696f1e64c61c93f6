#!/usr/bin/env python3
"""Writes calls of all functions of tierd.h, each with one pointer NULL, or with a structure of a wrong size: null_calls.py HEADER OUTPUT.

What stands for the other arguments is a field of struct given, of the parameter's name, or, of a structure, of the
structure's: a function with a parameter of a new name does not compile before that is there."""
import re
import sys

header = open(sys.argv[1]).read()
sized = set(re.findall(r"struct (\w+) \{\s*size_t size;", header))
prototype = re.compile(r"^(int|const char \*|struct \w+ \*)\s*(tierd_\w+)\(([^;{]*)\);", re.M)
parameter = re.compile(r"^(?P<type>.*?[ *])(?P<name>\w+)(?P<optional> /\* or NULL(?: if (?P<count>\w+) is 0)? \*/)?$")
calls = []


def field(type_, name):
    structure = re.fullmatch(r"(?:const )?struct tierd_(\w+) \*", type_)
    return f"given->struct_{structure[1]}" if structure and f"tierd_{structure[1]}" in complete else f"given->{name}"


def call(name, parameters, replaced):
    return f"{name}({', '.join(replaced.get(p['name'], field(p['type'], p['name'])) for p in parameters)})"


complete = set(re.findall(r"^struct (\w+) \{", header, re.M))
for kind, name, text in prototype.findall(header):
    if text == "void":
        continue
    parameters = [parameter.match(" ".join(part.split())) for part in text.split(",")]
    assert all(parameters), f"{name}: {text}"
    for one in parameters:
        if "*" not in one["type"]:
            continue
        null = {one["name"]: "NULL"}
        if one["optional"] and not one["count"]:
            calls.append((name, one["name"], "MAY_BE_NULL", None))
            continue
        calls.append((name, one["name"], "NULL_IS_REFUSED", call(name, parameters, null)))
        if one["count"]:
            calls.append((name, one["name"], "NULL_OF_NONE", call(name, parameters, {**null, one["count"]: "0"})))
    for one in parameters:
        structure = re.fullmatch(r"(?:const )?struct (\w+) \*", one["type"])
        if structure and structure[1] in sized:
            calls.append((name, one["name"], "SIZE_IS_REFUSED", call(name, parameters, {})))
            calls[-1] += (f"given->struct_{structure[1][6:]}->size",)
with open(sys.argv[2], "w") as output:
    for number, (name, argument, kind, code, *size) in enumerate(calls):
        if not code:
            continue
        output.write(f"static int call_{number}(const struct given *given)\n{{\n")
        if size:
            output.write(f"\tsize_t *size = &{size[0]}, good = *size;\n\tint r;\n\n\t*size = given->bad_size;\n"
                         f"\tr = {code};\n\t*size = good;\n\treturn r;\n}}\n\n")
        else:
            output.write(f"\treturn {code};\n}}\n\n")
    output.write("static const struct null_call null_calls[] = {\n")
    for number, (name, argument, kind, code, *size) in enumerate(calls):
        output.write(f'\t{{ "{name}", "{argument}", {kind}, {f"call_{number}" if code else "NULL"} }},\n')
    output.write("};\n")
