"""A package beside the page that lists its modules in the order in which they may be imported."""

import ast
import re
from functools import cached_property


class SourceMap:
    """The modules of a package, and the map of them on a page."""

    def __init__(self, package, page):
        self.package, self.page = package, page

    @cached_property
    def modules(self):
        """The file of each module, by its dotted name."""
        return {self._name_of(path): path for path in self.package.rglob("*.py")}

    def _name_of(self, path):
        parts = path.relative_to(self.package.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def order(self):
        """The modules in the order of the map; a package, also in several parts, follows its last module."""
        start = rf"^```\n(src/{self.package.name}/.*?)^```"
        block = re.search(start, self.page.read_text(), re.MULTILINE | re.DOTALL)[1]
        order, open_folders = [], []  # (indentation, name) of the folders that a line is in
        for line in block.splitlines():
            names = re.match(r"\s*((?:\S+(?:/|\.py)(?:\s|$))+)", line)
            if not names:
                continue  # an empty line, or one more line of a description
            indentation = len(line) - len(line.lstrip())
            while open_folders and open_folders[-1][0] >= indentation:
                name = open_folders.pop()[1]
                order.append(_dotted(open_folders, name))
            for name in names[1].split():
                if name.endswith("/"):
                    open_folders.append((indentation, name.removeprefix("src/").rstrip("/")))
                else:
                    order.append(_dotted(open_folders, name.removesuffix(".py")))
        while open_folders:
            name = open_folders.pop()[1]
            order.append(_dotted(open_folders, name))
        return [name for place, name in enumerate(order) if not self._is_again(name, order[place + 1 :])]

    def _is_again(self, name, later):
        """Whether it is a package that is on the map again."""
        return name in later and self.modules[name].name == "__init__.py"

    def imported(self, module):
        """The modules of the package that a module imports, each once."""
        return list(dict.fromkeys(self._imports_of(self.modules[module])))

    def _imports_of(self, path):
        own = self.package.name
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), (
                "imports are written out, not relative"
            )
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == own:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}  # perhaps modules
                yield from parts & set(self.modules) or {node.module}
            if isinstance(node, ast.Import):
                yield from (a.name for a in node.names if a.name.partition(".")[0] == own)

    def wrong_imports(self, exempt=()):
        """Imports of a module that has no line above."""
        place = {module: k for k, module in enumerate(self.order)}
        return [
            f"{module} imports {name}"
            for module in self.order
            if module not in exempt
            for name in self.imported(module)
            if place[name] >= place[module]
        ]

    def entries(self):
        """The source files and folders of each folder."""
        folders = [self.package, *(path for path in self.package.rglob("*") if path.is_dir())]
        return {folder: [path for path in folder.iterdir() if _is_source(path)] for folder in folders}


def _dotted(folders, name):
    return ".".join([*(folder for _, folder in folders), name])


def _is_source(path):
    """A file, or a folder that has source files: not one that only holds what an earlier version compiled.

    py.typed is a mark for type checkers.
    """
    return (path.is_file() and path.name != "py.typed") or any(path.rglob("*.py"))
