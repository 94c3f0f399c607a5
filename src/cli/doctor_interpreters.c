#include "cli/doctor.h"
#include "cpython/layout.h"
#include "process/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_INTERPRETERS_SHOWN = 64,
    MAX_FOLDERS = 256,
    PATIENCE_MS = 5000,
    ANSWER_BYTES = 256,
};

struct found {
    struct file_id {
        dev_t device;
        ino_t inode;
    } files[MAX_INTERPRETERS_SHOWN];
    size_t count;
};

/* python, python3, python3.13t, python3-dbg is none. */
static bool is_interpreter_name(const char *name) {
    static const char prefix[] = "python";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    name += sizeof prefix - 1;
    while (isdigit((unsigned char)*name) || *name == '.')
        name++;
    while (*name == 't' || *name == 'd')
        name++;
    return *name == '\0';
}

/* One file is shown once, whatever its names. */
static bool is_new(struct found *found, int folder_fd, const char *name) {
    struct stat status;
    if (fstatat(folder_fd, name, &status, 0) != 0 || !S_ISREG(status.st_mode) ||
        faccessat(folder_fd, name, X_OK, AT_EACCESS) != 0 || found->count == MAX_INTERPRETERS_SHOWN)
        return false;
    for (size_t i = 0; i < found->count; i++)
        if (found->files[i].device == status.st_dev && found->files[i].inode == status.st_ino)
            return false;
    found->files[found->count++] = (struct file_id){status.st_dev, status.st_ino};
    return true;
}

/* "Python 3.13.18 free-threading build (main, …) [GCC …]" (Modules/main.c 3.8 to 3.15, -VV) */
static void judge(const char *path, const char *answer) {
    static const char prefix[] = "Python ";
    char *after = NULL;
    if (strncmp(answer, prefix, sizeof prefix - 1) != 0)
        return;
    long major = strtol(answer + sizeof prefix - 1, &after, 10);
    long minor = *after == '.' ? strtol(after + 1, NULL, 10) : 0;
    int length = (int)(sizeof prefix - 1 + strcspn(answer + sizeof prefix - 1, " \n"));
    const char *kind = strstr(answer, "free-threading") != NULL ? ", free-threaded" : "";
    if (strstr(answer, "PyPy") != NULL || strstr(answer, "GraalVM") != NULL)
        doctor_find(FINDING_MISSING, "%s: it is no CPython", path);
    else if (major != 3 || minor < LAYOUT_OLDEST_MINOR)
        doctor_find(FINDING_MISSING, "%s: %.*s; strobe reads 3.%d and later", path, length, answer,
                    LAYOUT_OLDEST_MINOR);
    else if (minor > LAYOUT_NEWEST_MINOR)
        doctor_find(FINDING_NOTE, "%s: %.*s%s, newer than strobe knows; it is read by its own description", path,
                    length, answer, kind);
    else
        doctor_find(FINDING_WORKS, "%s: %.*s%s", path, length, answer, kind);
}

static void ask(const char *path) {
    const char *const command[] = {path, "-VV", NULL};
    char answer[ANSWER_BYTES];
    if (machine_ask_command(command, PATIENCE_MS, answer, sizeof answer) == STATUS_OK)
        judge(path, answer);
    else
        doctor_find(FINDING_MISSING, "%s: it does not run, or does not say its version", path);
}

static int compare_names(const struct dirent **left, const struct dirent **right) {
    return strcmp((*left)->d_name, (*right)->d_name);
}

static int is_wanted(const struct dirent *entry) {
    return is_interpreter_name(entry->d_name);
}

static void search_folder(struct found *found, const char *folder) {
    struct dirent **entries = NULL;
    const char *base = strrchr(folder, '/');
    /* pyenv's shims lead to whichever is chosen at the moment. */
    if (folder[0] != '/' || strcmp(base, "/shims") == 0)
        return;
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = folder_fd >= 0 ? scandir(folder, &entries, is_wanted, compare_names) : 0;
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX], real[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (length > 0 && (size_t)length < sizeof path && is_new(found, folder_fd, entries[i]->d_name))
            ask(realpath(path, real) != NULL ? real : path);
        free(entries[i]);
    }
    free(entries);
    if (folder_fd >= 0)
        (void)close(folder_fd);
}

void doctor_interpreters(void) {
    struct found found = {.count = 0};
    const char *rest = getenv("PATH");
    doctor_section("Interpreters on PATH");
    for (int i = 0; rest != NULL && i < MAX_FOLDERS; i++) {
        char folder[PATH_MAX];
        size_t length = strcspn(rest, ":");
        if (length > 0 && length < sizeof folder) {
            memcpy(folder, rest, length);
            folder[length] = '\0';
            search_folder(&found, folder);
        }
        rest = rest[length] == ':' ? rest + length + 1 : NULL;
    }
    if (found.count == 0)
        doctor_find(FINDING_NOTE, "there is none; 'strobe run SCRIPT.py' takes the first python3");
}
