from tegula_bench.command import main

if __name__ == "__main__":
    main()
