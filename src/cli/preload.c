#include "cli/preload.h"

#include "cli/program.h"
#include "elf/elf_image.h"
#include "wire/region.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { LINE_BYTES = 256, MAX_SCRIPTS = 4 };

#ifdef __x86_64__
enum { OWN_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OWN_MACHINE = EM_AARCH64 };
#endif

/* What "#!" names: the interpreter, or the command that it is told to look for when that is env. False for what is no
 * script. */
static bool read_script(int fd, char command[LINE_BYTES]) {
    char line[LINE_BYTES];
    ssize_t size = pread(fd, line, sizeof line - 1, 0);
    if (size < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[size] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *rest = NULL;
    const char *word = strtok_r(line + 2, " \t", &rest);
    const char *slash = word != NULL ? strrchr(word, '/') : NULL;
    if (slash != NULL && strcmp(slash, "/env") == 0)
        do
            word = strtok_r(NULL, " \t", &rest);
        while (word != NULL && (word[0] == '-' || strchr(word, '=') != NULL));
    if (word != NULL)
        (void)snprintf(command, LINE_BYTES, "%s", word);
    return word != NULL;
}

static bool says(char text[PRELOAD_OBSTACLE_BYTES], const char *what) {
    (void)snprintf(text, PRELOAD_OBSTACLE_BYTES, "%s", what);
    return true;
}

/* The kernel tells the dynamic linker then not to load what the environment names. */
static bool has_privileges(int fd, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    bool becomes_user = (info.st_mode & S_ISUID) != 0 && info.st_uid != getuid();
    bool becomes_group = (info.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && info.st_gid != getgid();
    return becomes_user || becomes_group || (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0);
}

static bool find_in_program(const struct elf_program *program, char text[PRELOAD_OBSTACLE_BYTES]) {
    if (!program->is_64bit || program->machine != OWN_MACHINE)
        return says(text, "is for another architecture than strobe");
    if (!program->is_dynamic)
        return says(text, "is linked statically");
    bool is_musl = strstr(program->interpreter, "/ld-musl-") != NULL;
#ifdef __GLIBC__
    return is_musl ? says(text, "uses musl, and this strobe glibc") : false;
#else
    return is_musl ? false : says(text, "uses glibc, and this strobe musl");
#endif
}

static bool find_in_file(int fd, const char *path, char text[PRELOAD_OBSTACLE_BYTES]) {
    struct elf_file *file = NULL;
    struct elf_program program;
    if (elf_file_open(fd, &file) != STATUS_OK)
        return false;
    elf_file_describe(file, &program);
    elf_file_free(file);
    return find_in_program(&program, text) ||
           (has_privileges(fd, path) && says(text, "runs with the privileges of another user"));
}

bool preload_find_obstacle(const char *command, char text[PRELOAD_OBSTACLE_BYTES]) {
    char path[PATH_MAX], name[LINE_BYTES];
    (void)snprintf(name, sizeof name, "%s", "");
    for (int i = 0; i < MAX_SCRIPTS && program_find_on_path(command, path); i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            return false;
        bool is_script = read_script(fd, name);
        bool found = !is_script && find_in_file(fd, path, text);
        (void)close(fd);
        if (!is_script)
            return found;
        command = name;
    }
    return false;
}

enum status preload_find_agent(char *path, size_t capacity, struct error *error) {
    char own[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
    if (size <= 0)
        return error_set(error, STATUS_FAILED, "cannot find its agent, " WIRE_AGENT_LIBRARY ": /proc is not mounted");
    own[size] = '\0';
    char *slash = strrchr(own, '/');
    if (slash != NULL)
        *slash = '\0';
    /* Installed, it is found from where the program is, so that the whole may be moved. */
    static const char *const folders[] = {"", "/" STROBE_LIBRARY_FROM_PROGRAM};
    for (size_t i = 0; slash != NULL && i < sizeof folders / sizeof folders[0]; i++) {
        int length = snprintf(path, capacity, "%s%s/" WIRE_AGENT_LIBRARY, own, folders[i]);
        if (length > 0 && (size_t)length < capacity && access(path, R_OK) == 0)
            return STATUS_OK;
    }
    return error_set(error, STATUS_FAILED,
                     "its agent, " WIRE_AGENT_LIBRARY
                     ", is neither beside strobe nor in %s/" STROBE_LIBRARY_FROM_PROGRAM " (--no-agent does without)",
                     own);
}

/* Others that are preloaded stay, behind the agent: what it interposes it passes on to them. */
static char *preload_before;

static enum status set_preload(const char *agent) {
    const char *before = getenv("LD_PRELOAD");
    char *value = NULL;
    bool has_before = before != NULL && before[0] != '\0';
    if (before != NULL && (preload_before = strdup(before)) == NULL)
        return STATUS_FAILED;
    if (asprintf(&value, "%s%s%s", agent, has_before ? ":" : "", has_before ? before : "") < 0)
        return STATUS_FAILED;
    int failed = setenv("LD_PRELOAD", value, 1);
    free(value);
    return failed == 0 ? STATUS_OK : STATUS_FAILED;
}

enum status preload_enter(const struct preload *preload) {
    char period[32], stride[32], copies[32];
    (void)snprintf(period, sizeof period, "%llu", (unsigned long long)preload->period_ns);
    (void)snprintf(stride, sizeof stride, "%llu", (unsigned long long)preload->memory_stride_bytes);
    (void)snprintf(copies, sizeof copies, "%llu", (unsigned long long)preload->copy_stride_bytes);
    TRY(set_preload(preload->agent));
    if (setenv(WIRE_ENVIRONMENT_FOLDER, preload->folder, 1) != 0 || setenv(WIRE_ENVIRONMENT_PERIOD, period, 1) != 0 ||
        setenv(WIRE_ENVIRONMENT_MEMORY, stride, 1) != 0 || setenv(WIRE_ENVIRONMENT_COPIES, copies, 1) != 0)
        return STATUS_FAILED;
    if (preload->wants_perf ? setenv(WIRE_ENVIRONMENT_CLOCK, "perf", 1) != 0 : unsetenv(WIRE_ENVIRONMENT_CLOCK) != 0)
        return STATUS_FAILED;
    if (preload->paused ? setenv(WIRE_ENVIRONMENT_PAUSED, "1", 1) != 0 : unsetenv(WIRE_ENVIRONMENT_PAUSED) != 0)
        return STATUS_FAILED;
    return STATUS_OK;
}

void preload_leave(void) {
    static const char *const names[] = {WIRE_ENVIRONMENT_FOLDER, WIRE_ENVIRONMENT_PERIOD, WIRE_ENVIRONMENT_PAUSED,
                                        WIRE_ENVIRONMENT_MEMORY, WIRE_ENVIRONMENT_COPIES};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unsetenv(names[i]);
    if (preload_before != NULL)
        (void)setenv("LD_PRELOAD", preload_before, 1);
    else
        (void)unsetenv("LD_PRELOAD");
    free(preload_before);
    preload_before = NULL;
}
