"""The package script, with lists of its own and stand-ins for dpkg-query, apt-get, id and sudo."""

import os
import pathlib
import subprocess
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "packages"

LIST = """# A comment.
[build]
one
two
[test]
# Another.
three

[ci]
four
"""


class Packages(unittest.TestCase):
    def run_tool(self, *groups, installed=(), user=0, sudo=False):
        """Runs the script where `installed` packages are there; returns its result and apt-get's calls."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "packages.txt").write_text(LIST, encoding="utf-8")
            states = "".join(f"echo installed {name}\n" for name in installed)
            # dpkg-query fails when it does not know one of its arguments.
            self.command(root, "dpkg-query", states + "echo config-files ghost\nexit 1\n")
            self.command(root, "apt-get", f'echo "$SUDO$*" >> {root}/calls\n')
            self.command(root, "id", f"echo {user}\n")
            self.command(root, "sudo", '[ "$1" = -n ] && shift\nSUDO="sudo " exec "$@"\n' if sudo else "exit 1\n")
            result = subprocess.run(
                ["bash", TOOL, *groups],
                env={**os.environ, "PATH": f"{root}:{os.environ['PATH']}", "DCFORMER_PACKAGE_LIST": f"{root}/packages.txt"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            calls = root / "calls"
            return result, calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []

    @staticmethod
    def command(root, name, script):
        file = root / name
        file.write_text("#!/bin/sh\n" + script, encoding="utf-8")
        file.chmod(0o755)

    def test_does_nothing_when_all_are_there(self):
        result, calls = self.run_tool("build", "test", installed=["one", "two", "three"])
        self.assertEqual((result.returncode, calls, result.stderr), (0, [], ""))

    def test_installs_what_is_missing_of_the_groups(self):
        result, calls = self.run_tool("build", "test", installed=["two"])
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(calls), 2)
        self.assertIn("update", calls[0])
        self.assertTrue(calls[1].endswith(" one three"), calls[1])

    def test_a_removed_package_is_missing(self):
        _, calls = self.run_tool("ci", installed=["fourth"])
        self.assertTrue(calls[1].endswith(" four"), calls)

    def test_uses_sudo(self):
        result, calls = self.run_tool("ci", user=1000, sudo=True)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(calls[1].startswith("sudo "), calls)

    def test_names_the_missing_without_root_and_sudo(self):
        result, calls = self.run_tool("build", installed=["two"], user=1000)
        self.assertEqual((result.returncode, calls), (1, []))
        self.assertIn("apt-get install one\n", result.stderr)

    def test_wrong_usage(self):
        for groups in ([], ["attic"]):
            result, calls = self.run_tool(*groups)
            self.assertEqual((result.returncode, calls), (2, []))


if __name__ == "__main__":
    unittest.main()
