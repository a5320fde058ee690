from tegula_bench.forward_profile import main

if __name__ == "__main__":
    raise SystemExit(main())
