"""Reports: figures with names, that print as a text and are tables in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass
class Table:
    """Rows of cells that are texts; the first column is the rows' names, the others are aligned to the right."""

    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        texts = ("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines)
        return "\n".join(text.rstrip() for text in texts)

    def _repr_html_(self) -> str:
        head = _html_row(self.columns, "th")
        return (
            f"<table><thead>{head}</thead><tbody>{''.join(_html_row(row, 'td') for row in self.rows)}</tbody></table>"
        )


class Report(dict[str, Any]):
    """Figures by name, as items and as attributes; bytes, seconds and counts, as their names say."""

    def __init__(self, figures: dict[str, Any], parts: Sequence[str | Table]):
        super().__init__(figures)
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no figure {name!r}; there are {', '.join(self)}") from None

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._parts))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(
            part._repr_html_() if isinstance(part, Table) else f"<p>{escape(part)}</p>" for part in self._parts
        )


def _html_row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def text_of_bytes(count: float) -> str:
    """As tierctl writes it: three digits, in a unit of 1024."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    digits = 0 if unit == 0 or count >= 100 else 1 if count >= 10 else 2
    return f"{count:.{digits}f} {_UNITS[unit]}"


def text_of_seconds(seconds: float) -> str:
    """In milliseconds below one second."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
