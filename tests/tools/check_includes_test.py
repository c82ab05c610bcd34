"""The include rule's check, on small trees that keep or break it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"


class CheckIncludes(unittest.TestCase):
    def run_on(self, files):
        """The tool's exit status and output lines for a tree of {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            result = subprocess.run(
                [sys.executable, TOOL, folder], capture_output=True, text=True, check=False
            )
        return result.returncode, result.stdout.splitlines()

    def expect_break(self, files, line):
        status, output = self.run_on(files)
        self.assertEqual(status, 1)
        self.assertEqual(len(output), 1, output)
        self.assertIn(line, output[0])

    def test_own_and_lower_floors_are_allowed(self):
        status, output = self.run_on(
            {
                "dcformer/base/error.h": "#include <string>\n",
                "dcformer/io/file.h": '#include "dcformer/base/error.h"\n',
                "dcformer/ops/linear.h": '#include "dcformer/io/file.h"\n#include "dcformer/base/error.h"\n',
                "dcformer/serve/server.cc": '#include "dcformer/ops/linear.h"\n',
                "dcformer/cli/main.cc": '#include "dcformer/serve/server.cc"\n',
            }
        )
        self.assertEqual((status, output), (0, []))

    def test_each_higher_floor_is_a_break(self):
        order = ["base", "tensor", "ops", "model", "train", "eval", "cli"]
        for below, above in zip(order, order[1:]):
            self.expect_break(
                {
                    f"dcformer/{above}/a.h": "",
                    f"dcformer/{below}/b.h": f'\n#include "dcformer/{above}/a.h"\n',
                },
                f"dcformer/{below}/b.h:2: \"dcformer/{above}/a.h\" is on floor",
            )

    def test_folders_of_one_floor(self):
        for floor in (["ops", "io", "text"], ["model", "data"], ["train", "generate"], ["eval", "serve", "inspect"]):
            files = {f"dcformer/{folder}/a.h": "" for folder in floor}
            files[f"dcformer/{floor[0]}/b.cc"] = "".join(f'#include "dcformer/{f}/a.h"\n' for f in floor)
            self.assertEqual(self.run_on(files), (0, []))

    def test_spaces_do_not_hide_an_include(self):
        self.expect_break(
            {"dcformer/ops/a.h": "", "dcformer/base/b.h": '  #  include   "dcformer/ops/a.h"\n'}, "is on floor 2"
        )

    def test_paths_start_at_the_library(self):
        self.expect_break({"dcformer/base/a.h": "", "dcformer/base/b.h": '#include "a.h"\n'}, "start at dcformer/")
        self.expect_break({"tests/a.h": "", "dcformer/base/b.h": '#include "tests/a.h"\n'}, "start at dcformer/")
        self.expect_break(
            {"dcformer/base/a.h": "", "dcformer/base/b.h": "#include <dcformer/base/a.h>\n"}, "with quotes"
        )

    def test_unknown_places(self):
        self.expect_break({"dcformer/attic/a.h": ""}, "dcformer/attic/a.h:1: stands on no floor")
        self.expect_break({"dcformer/a.h": ""}, "dcformer/a.h:1: stands on no floor")
        self.expect_break({"dcformer/base/b.h": '#include "dcformer/attic/a.h"\n'}, "stands on no floor")
        self.expect_break({"dcformer/base/b.h": '#include "dcformer/base/a.h"\n'}, "does not exist")

    def test_tests_and_other_files_are_not_checked(self):
        status, output = self.run_on(
            {
                "dcformer/base/notes.txt": '#include "dcformer/cli/main.h"\n',
                "dcformer/base/a.h": '// #include "dcformer/cli/main.h"\n',
                "tests/a.cc": '#include "anything.h"\n',
            }
        )
        self.assertEqual((status, output), (0, []))

    def test_a_wrong_root_is_a_usage_error(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(
                [sys.executable, TOOL, folder], capture_output=True, text=True, check=False
            )
        self.assertEqual(result.returncode, 2)
        self.assertIn("has no folder dcformer", result.stderr)


if __name__ == "__main__":
    unittest.main()
