"""What the unsafe settings of process rewards cost, computed exactly: `python benchmarks/process_choices.py`."""

from accredit.credit.process.prices import measured_prices


def main() -> None:
    print(f"{'choice':40s} {'unsafe':>8s} {'safe':>8s} {'exact':>8s}")
    for price in measured_prices():
        exact = "" if price.exact is None else f"{price.exact:8.3f}"
        print(f"{price.choice:40s} {price.unsafe:8.3f} {price.safe:8.3f} {exact}")


if __name__ == "__main__":
    main()
