"""How the scripts of the root folder treat their arguments, without building anything."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Scripts(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run(
            ["bash", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    def test_help(self):
        for script in ("test", "bench", "quickstart"):
            result = self.run_script(script, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout.startswith(f"usage: ./{script}"), result.stdout)

    def test_wrong_usage(self):
        for arguments in (
            ["test", "--everything"],
            ["bench", "one", "two"],
            ["bench", "speed"],
            ["bench", "train", "memory"],
            ["quickstart", "--steps"],
            ["quickstart", "--steps", "0"],
            ["quickstart", "--steps", "many"],
            ["quickstart", "--output"],
            ["quickstart", "faster"],
        ):
            result = self.run_script(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertTrue(result.stderr.startswith("error: "), arguments)

    def test_bench_names_its_groups(self):
        text = self.run_script("bench", "--help").stdout
        main = (ROOT / "benchmarks/main.cc").read_text(encoding="utf-8")
        groups = re.findall(r'\{"(\w+)", bench_', main)
        self.assertGreater(len(groups), 3)
        self.assertIn("groups: " + ", ".join(groups) + "\n", text)
        script = (ROOT / "bench").read_text(encoding="utf-8")
        self.assertIn("^(" + "|".join(groups) + ")$", script)

    def fake_root(self, folder, trainer):
        """The scripts of the root folder over a tool that is a stub."""
        root = pathlib.Path(folder) / "root"
        (root / "tools").mkdir(parents=True)
        (root / "build").mkdir()
        (root / "bin").mkdir()
        for path, text in (
            ("tools/packages", "exit 0"),
            ("tools/configure", "exit 0"),
            ("bin/cmake", "exit 0"),
            ("build/dcformer", trainer),
        ):
            (root / path).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (root / path).chmod(0o755)
        shutil.copy(ROOT / "quickstart", root)
        (root.parent / "link").symlink_to("root/quickstart")
        return root

    def run_quickstart(self, trainer):
        with tempfile.TemporaryDirectory() as folder:
            root = self.fake_root(folder, trainer)
            environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"}
            return subprocess.run(
                ["bash", str(root.parent / "link")],
                cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False,
            )

    def test_quickstart_through_a_link_trains_and_generates(self):
        result = self.run_quickstart('echo "$1"')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "train\n\ngenerate\n")

    def test_quickstart_passes_on_how_training_ended(self):
        for status in (1, 130, 143):
            result = self.run_quickstart(f'echo "$1"; exit {status}')
            self.assertEqual(result.returncode, status)
            self.assertEqual(result.stdout, "train\n")
            self.assertEqual("run ./quickstart again" in result.stderr, status != 1)

    def test_fresh_keeps_what_is_no_run(self):
        with tempfile.TemporaryDirectory() as folder:
            keepsake = pathlib.Path(folder) / "photo"
            keepsake.write_text("x", encoding="utf-8")
            result = self.run_script("quickstart", "--fresh", "--output", folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("not the folder of a training run", result.stderr)
            self.assertTrue(keepsake.exists())


if __name__ == "__main__":
    unittest.main()
