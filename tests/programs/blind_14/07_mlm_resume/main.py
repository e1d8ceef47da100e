from run_mlm import main

if __name__ == "__main__":
    main()
