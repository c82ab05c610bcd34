"""How the scripts of the root folder treat their arguments, without building anything."""

import pathlib
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
            ["quickstart", "--steps"],
            ["quickstart", "--steps", "0"],
            ["quickstart", "--steps", "many"],
            ["quickstart", "--output"],
            ["quickstart", "faster"],
        ):
            result = self.run_script(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertNotEqual(result.stderr + result.stdout, "", arguments)

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
