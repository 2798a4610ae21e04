"""The user's program: where it is, what it imports, and running it as `__main__`, as `python` would."""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import os
import runpy
import site
import sys
import sysconfig
import types
import warnings
from dataclasses import dataclass, field


@dataclass
class Program:
    name: str  # a path, or a dotted module name
    is_module: bool = False
    args: list[str] = field(default_factory=list)
    code = None  # once it is compiled; no field, for it does not travel

    def check(self) -> None:
        """Raises ValueError, with one line for people, where the program cannot be started."""
        if self.is_module:
            if self._module_spec() is None:
                raise ValueError(f"there is no module '{self.name}' in {os.getcwd()} or among the installed packages")
        elif os.path.isdir(self.name):
            raise ValueError(f"the program '{self.name}' is a folder; give a Python file, or -m and a module")
        elif not os.path.isfile(self.name):
            raise ValueError(f"there is no program '{self.name}'")
        elif not os.access(self.name, os.R_OK):
            raise ValueError(f"the program '{self.name}' cannot be read")

    @property
    def words(self) -> list[str]:
        """As on the command line."""
        return (["-m"] if self.is_module else []) + [self.name, *self.args]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2] if self.is_module else os.path.splitext(os.path.basename(self.name))[0]

    @property
    def search_path(self) -> str:
        """What `python` puts first on sys.path."""
        return os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.name))

    @property
    def path(self) -> str | None:
        """Its file; None for a module that has none."""
        if not self.is_module:
            return self.name
        spec = self._module_spec()
        return spec.origin if spec and spec.has_location else None

    def imports(self) -> list[tuple[str, list[str]]]:
        """(module, names taken from it) of each import that stands at top level, `try` and `if` included."""
        try:
            with open(self.path or "", "rb") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError):
            return []  # the ranks will say what is wrong
        found: list[tuple[str, list[str]]] = []
        blocks = list(tree.body)
        while blocks:
            node = blocks.pop(0)
            if isinstance(node, ast.Import):
                found += [(alias.name, []) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.append((node.module, [alias.name for alias in node.names if alias.name != "*"]))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                blocks += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        return found

    def compile(self) -> None:
        """Ahead of run(), once for all ranks. What is wrong with the source, run() will say in each."""
        if self.is_module:
            return
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("error")
            self.code = self._compiled()

    def _compiled(self) -> types.CodeType:
        path = os.path.join(os.getcwd(), self.name)  # absolute, as `python` makes it; argv[0] is not
        with open(path, "rb") as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    def run(self) -> None:
        """Runs the program in this process; returns or raises as it does."""
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        sys.path.insert(0, self.search_path)
        sys.argv = [self.name, *self.args]
        sys.orig_argv = [sys.executable, *(["-m"] if self.is_module else []), *sys.argv]
        if self.is_module:
            runpy._run_module_as_main(self.name)  # fills the `__main__` above, as `python -m` does
            return
        code = self.code or self._compiled()
        main.__file__ = path = code.co_filename
        main.__dict__["__cached__"] = None
        if sys.version_info < (3, 14):
            main.__annotations__ = {}
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        exec(code, main.__dict__)

    def _module_spec(self) -> importlib.machinery.ModuleSpec | None:
        """Found without importing anything, parents included."""
        path: list[str] | None = [self.search_path, *sys.path]
        spec = None
        for part in self.name.split("."):
            spec = importlib.machinery.PathFinder.find_spec(part, path)
            if spec is None:
                return None
            path = list(spec.submodule_search_locations or [])
        if spec is not None and spec.submodule_search_locations is not None:
            return importlib.machinery.PathFinder.find_spec("__main__", path)
        return spec


def is_installed(module: str, first: str) -> bool:
    """Whether `module` comes from an installed package when `first` leads sys.path: then importing it early, before
    the ranks exist, cannot run the user's own code (which may read RANK as it is imported)."""
    spec = importlib.machinery.PathFinder.find_spec(module.partition(".")[0], [first, *sys.path])
    if spec is None or not spec.origin:
        return False
    roots = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    roots += [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    origin = os.path.realpath(spec.origin)
    return any(origin.startswith(os.path.realpath(root) + os.sep) for root in roots)
