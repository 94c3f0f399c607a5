/* The folder in which processes that strobe started leave their regions (wire/region.h). */
#ifndef STROBE_SAMPLER_AGENT_FOLDER_H
#define STROBE_SAMPLER_AGENT_FOLDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { AGENT_NAME_BYTES = 64 };

struct agent_folder {
    char *path;
    int fd;      /* locked as long as strobe lives */
    int news_fd; /* inotify; -1: there are too many watches, and the folder is searched instead */
};

/* Makes a folder that only this user can enter, under a name that nobody can guess, where memory serves as disk if
 * there is such a place. Removes those that dead strobes left there. */
enum status agent_folder_open(struct agent_folder *folder, struct error *error) MUST_USE;
/* Removes it and what is in it. */
void agent_folder_close(struct agent_folder *folder);

/* Takes what is new since the last call; `found` is called with the name of each file that was made or finished, maybe
 * several times. *lost: some were not told of, search. */
void agent_folder_read_news(const struct agent_folder *folder, void (*found)(void *context, const char *name),
                            void *context, bool *lost);
/* Calls `found` with the name of each file that is there. */
void agent_folder_search(const struct agent_folder *folder, void (*found)(void *context, const char *name),
                         void *context);

/* Takes "PID-N.region" apart. */
bool agent_folder_parse_name(const char *name, pid_t *pid, uint32_t *incarnation);

#endif
