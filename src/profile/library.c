/* Which files are library code. */
#include "profile/builder.h"

#include <string.h>

static bool starts_with(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Whether `text` goes on with a version as in python3.13t/ */
static bool is_version_folder(const char *text) {
    size_t digits = strspn(text, "0123456789");
    text += digits;
    text += *text == 't';
    text += *text == 'd';
    return digits > 0 && *text == '/';
}

/* lib/python3.13/ and lib64/python3.13t/ are the standard library's home in every layout of sysconfig on Unix;
 * python313.zip is what an embedded Python has for it. */
static bool is_in_standard_library(const char *path) {
    for (const char *at = strstr(path, "/lib"); at != NULL; at = strstr(at + 1, "/lib")) {
        const char *folder = at + strlen("/lib");
        folder += starts_with(folder, "64") ? 2 : 0;
        if (starts_with(folder, "/python3.") && is_version_folder(folder + strlen("/python3.")))
            return true;
    }
    const char *archive = strstr(path, "/python3");
    return archive != NULL && starts_with(archive + 8 + strspn(archive + 8, "0123456789"), ".zip/");
}

/* Or the file itself. */
static bool is_inside(const char *path, const char *folder) {
    size_t length = strlen(folder);
    while (length > 0 && folder[length - 1] == '/')
        length--;
    return length > 0 && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Where installers put packages, as folders or as archives. */
static bool has_folder_of_packages(const char *path) {
    static const char *const FOLDERS[] = {"/site-packages/", "/dist-packages/", ".whl/", ".egg/"};
    for (size_t i = 0; i < sizeof FOLDERS / sizeof FOLDERS[0]; i++)
        if (strstr(path, FOLDERS[i]) != NULL)
            return true;
    return false;
}

static bool is_library_path(const struct profile *profile, const char *path) {
    /* Code without a file that some library made: numpy's dispatchers, attrs's methods. Other names in angle brackets
     * (<string>, <stdin>, <ipython-input-1>) are what a user typed. */
    static const char *const GENERATED[] = {"<frozen ", "<__array_function__ ", "<attrs generated "};
    for (size_t i = 0; i < sizeof GENERATED / sizeof GENERATED[0]; i++)
        if (starts_with(path, GENERATED[i]))
            return true;
    if (*path == '\0' || has_folder_of_packages(path) || is_in_standard_library(path))
        return true;
    for (size_t i = 0; i < profile->builder->library_count; i++)
        if (is_inside(path, profile->builder->libraries[i]))
            return true;
    return false;
}

/* python -c, -uc; not python script.py -c, nor python -m module -c. */
static bool runs_a_string(const struct profile_process *process) {
    for (size_t i = 1; i < process->command_count; i++) {
        const char *word = process->command[i];
        if (word[0] != '-' || word[1] == '-')
            return false;
        /* From the first letter that takes a value on, the rest of the word is that value, or else the next word is. */
        const char *option = word + 1 + strcspn(word + 1, "cmWX");
        if (*option == 'c' || *option == 'm')
            return *option == 'c';
        i += *option != '\0' && option[1] == '\0';
    }
    return false;
}

static bool has_parent(const struct profile *profile, const struct profile_process *child) {
    return child->parent_pid != 0 && digest_map_get(&profile->builder->pids, builder_pid_key(child->parent_pid)) != 0;
}

static bool user_runs_a_string(const struct profile *profile) {
    for (size_t p = 0; p < profile->process_count; p++)
        if (runs_a_string(&profile->processes[p]) && !has_parent(profile, &profile->processes[p]))
            return true;
    return false;
}

bool library_runs_strings(const struct profile *profile) {
    bool any_does = false;
    for (size_t p = 0; p < profile->process_count && !any_does; p++)
        any_does = runs_a_string(&profile->processes[p]);
    return any_does && !user_runs_a_string(profile);
}

/* dataclasses and namedtuple write methods, which are in a string, and have names as __init__. */
static bool is_generated_method(const struct profile *profile, const struct profile_frame *frame) {
    size_t length = strlen(frame->function);
    return strcmp(frame->file, "<string>") == 0 && length > 4 && starts_with(frame->function, "__") &&
           strcmp(frame->function + length - 2, "__") == 0 && !user_runs_a_string(profile);
}

bool library_has_frame(const struct profile *profile, const struct profile_frame *frame) {
    return is_library_path(profile, frame->file) || is_generated_method(profile, frame);
}
