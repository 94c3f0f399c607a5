/* A program that becomes Python when it pleases.
 *
 * usage: embed_late LIBPYTHON global|local [PYTHON'S ARGUMENTS] */
#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    /* As programs do, long before. */
    setlocale(LC_ALL, "");
    static void *volatile kept;
    kept = malloc(30000001);
    void *library = dlopen(argv[1], RTLD_NOW | (strcmp(argv[2], "local") == 0 ? RTLD_LOCAL : RTLD_GLOBAL));
    void *symbol = library != NULL ? dlsym(library, "Py_BytesMain") : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    int (*python_main)(int, char **);
    memcpy(&python_main, &symbol, sizeof python_main);
    argv[2] = argv[0];
    int status = python_main(argc - 2, argv + 2);
    free(kept);
    return status;
}
