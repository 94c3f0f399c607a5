#include "cli/program.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LAUNCHER_BYTES = 2048 };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static bool is_python(char *const *command) {
    return command[0] != NULL && strncmp(base_name(command[0]), "python", strlen("python")) == 0;
}

/* What follows the interpreter's own options, and the letter of the option that says what it is; 0: a script.
 * Options may be joined: -Wd, -Im module (Python/getopt.c). */
static const char *find_target(char *const *command, char *kind) {
    *kind = 0;
    for (size_t i = 1; command[i] != NULL; i++) {
        const char *word = command[i];
        if (word[0] != '-')
            return word;
        if (word[1] == '\0')
            return NULL;
        if (strcmp(word, "--") == 0)
            return command[i + 1];
        if (strcmp(word, "--check-hash-based-pycs") == 0) {
            if (command[++i] == NULL)
                return NULL;
            continue;
        }
        const char *with_value = word[1] == '-' ? NULL : strpbrk(word + 1, "cmWX");
        if (with_value == NULL)
            continue;
        const char *value = with_value[1] != '\0' ? with_value + 1 : command[++i];
        if (*with_value == 'c' || *with_value == 'm') {
            *kind = *with_value;
            return value;
        }
        if (value == NULL)
            return NULL;
    }
    return NULL;
}

const char *program_script(char *const *command) {
    char kind = 0;
    const char *target = is_python(command) ? find_target(command, &kind) : NULL;
    return kind == 0 ? target : NULL;
}

size_t program_name(char *const *command, const char **name) {
    char kind = 0;
    const char *target = is_python(command) ? find_target(command, &kind) : NULL;
    const char *path = target != NULL && kind != 'c' ? target : command[0] != NULL ? command[0] : "";
    size_t length = strlen(path);
    /* A folder with a __main__.py, as shells complete it. */
    while (length > 0 && path[length - 1] == '/')
        length--;
    *name = path + length;
    while (*name > path && (*name)[-1] != '/')
        --*name;
    length -= (size_t)(*name - path);
    return length;
}

static bool is_in_bin(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash - path >= 4 && strncmp(slash - 4, "/bin", 4) == 0;
}

/* A few lines that import something and exit with what it returns; no code of anybody's own. */
static bool is_launcher_text(const char *text) {
    static const char *const own[] = {"\ndef ", "\nclass ", "\nwhile ", "\nfor ", "\nwith "};
    /* Of old setuptools, in each of its scripts. */
    const char *helper = strstr(text, "\ndef importlib_load_entry_point(");
    if (strncmp(text, "#!", 2) != 0 || strstr(text, "import ") == NULL || strstr(text, "sys.exit(") == NULL)
        return false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        const char *found = strstr(text, own[i]);
        if (found != NULL && found != helper)
            return false;
    }
    return true;
}

static bool is_launcher(struct process *process, const char *path) {
    char text[MAX_LAUNCHER_BYTES + 1];
    int fd = -1;
    if (process_open_path(process, path, &fd) != STATUS_OK)
        return false;
    ssize_t size = read(fd, text, sizeof text);
    (void)close(fd);
    if (size <= 0 || size > MAX_LAUNCHER_BYTES)
        return false;
    text[size] = '\0';
    return is_launcher_text(text);
}

enum status program_find_launcher(struct process *process, const char *began_in, char *const *command, char *path,
                                  size_t capacity) {
    const char *script = command != NULL ? program_script(command) : NULL;
    if (process == NULL || script == NULL)
        return STATUS_NOT_FOUND;
    if (script[0] != '/')
        TRY(process_resolve_path(process, began_in, script, path, capacity));
    else if (snprintf(path, capacity, "%s", script) >= (int)capacity)
        return STATUS_NOT_FOUND;
    return is_in_bin(path) && is_launcher(process, path) ? STATUS_OK : STATUS_NOT_FOUND;
}

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

bool program_find_on_path(const char *command, char path[PATH_MAX]) {
    if (strchr(command, '/') != NULL)
        return snprintf(path, PATH_MAX, "%s", command) < PATH_MAX && is_program(path);
    const char *folders = getenv("PATH");
    for (const char *at = folders != NULL ? folders : "/bin:/usr/bin"; at != NULL;) {
        size_t length = strcspn(at, ":");
        int size = snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, at, length > 0 ? "/" : "", command);
        if (size < PATH_MAX && is_program(path))
            return true;
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    return false;
}

static bool is_elf_file(const char *path) {
    char magic[SELFMAG] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool found = fd >= 0 && read(fd, magic, sizeof magic) == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0;
    if (fd >= 0)
        (void)close(fd);
    return found;
}

bool program_is_no_script(const char *word) {
    char path[PATH_MAX];
    if (access(word, F_OK) == 0)
        return is_elf_file(word);
    return strchr(word, '/') == NULL && program_find_on_path(word, path);
}
