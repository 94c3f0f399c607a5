/* A program that has Python several times, one after the other: one for each argument, which is what it runs. */
void Py_InitializeEx(int handlers);
int PyRun_SimpleStringFlags(const char *text, void *flags);
int Py_FinalizeEx(void);

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        Py_InitializeEx(1);
        if (PyRun_SimpleStringFlags(argv[i], 0) != 0 || Py_FinalizeEx() != 0)
            return 1;
    }
    return 0;
}
