/* What a command line runs. */
#ifndef STROBE_CLI_PROGRAM_H
#define STROBE_CLI_PROGRAM_H

#include "process/process.h"

#include <limits.h>
#include <stdbool.h>

/* The script (or folder, or archive) that a Python is told to run; NULL for a module, code, standard input, and for
 * what is no Python by its name. */
const char *program_script(char *const *command);
/* The script or module; for what is no Python by its name (a shell, gunicorn), that. Without its folder; *name ends
 * after as many bytes as are returned, which may be none. */
size_t program_name(char *const *command, const char **name);

/* Where execvp finds a command. */
bool program_find_on_path(const char *command, char path[PATH_MAX]);
/* Whether a word that is to be a script is a command instead: there is no such file here but one on PATH, or it is
 * machine code. */
bool program_is_no_script(const char *word);

/* The absolute path of the script, as the process sees it, if it is nothing but what an installer (pip, uv, setuptools)
 * puts into a bin folder to call a package's function. began_in: as in process_resolve_path. */
enum status program_find_launcher(struct process *process, const char *began_in, char *const *command, char *path,
                                  size_t capacity) MUST_USE;

#endif
