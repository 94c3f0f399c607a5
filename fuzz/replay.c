/* Runs every file of a corpus folder through a fuzz target once, so that what fuzzing has found stays found without
 * libFuzzer. usage: replay FOLDER */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat information;
    if (file == NULL || fstat(fileno(file), &information) != 0) {
        perror(path);
        if (file != NULL)
            (void)fclose(file);
        return 1;
    }
    /* Exactly as large as the input, so that a sanitizer or valgrind sees a read past its end. */
    size_t size_bytes = (size_t)information.st_size;
    uint8_t *data = malloc(size_bytes > 0 ? size_bytes : 1);
    int failed = data == NULL || fread(data, 1, size_bytes, file) != size_bytes;
    if (!failed)
        (void)LLVMFuzzerTestOneInput(data, size_bytes);
    else
        perror(path);
    free(data);
    (void)fclose(file);
    return failed;
}

int main(int argc, char **argv) {
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        (void)fprintf(stderr, "usage: replay FOLDER\n");
        return 2;
    }
    int failures = 0;
    int inputs = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        failures += replay_file(path);
        inputs++;
    }
    (void)closedir(folder);
    printf("%d inputs, %d unreadable\n", inputs, failures);
    return failures > 0;
}
