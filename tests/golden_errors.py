"""Print the worst errors against the golden cases: ``python tests/golden_errors.py``."""

import golden_cases
from mamba2_bridge.parity.in_torch.twin import TwinRunner
from mamba2_bridge.parity.measures import relative_error
from mamba2_bridge.parity.native import NativeRunner
from mamba2_bridge.parity.tolerances import quantity_of, tolerance


def main() -> None:
    """One line a runner and dtype: the result that is nearest to its bound, and the largest error of all."""
    for runner in (NativeRunner(), TwinRunner()):
        for dtype in ("float64", "float32"):
            errors = []
            for case in golden_cases.blocks():
                got = golden_cases.results(runner, case, dtype)
                for name, want in case.expected.items():
                    error = relative_error(got[name], want)
                    bound = tolerance(quantity_of(name), dtype).bound(case.own_loss.get(name, 0.0))
                    errors.append((error / bound, error, bound, f"{case.name}: {name}"))
            _, error, bound, where = max(errors)
            flat = max((one for one in errors if one[2] < 1), key=lambda one: one[1])
            print(
                f"{runner.name} {dtype}: {len(errors)} results, nearest to its bound "
                f"{error:.1e} of {bound:.1e} ({where}), largest {flat[1]:.1e} of {flat[2]:.1e} ({flat[3]})"
            )


if __name__ == "__main__":
    main()
