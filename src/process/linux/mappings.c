#include "process/linux/linux_process.h"
#include "process/linux/proc_files.h"

#include <stdlib.h>
#include <string.h>

/* Far above what vm.max_map_count (65530 by default) allows in practice. */
enum { MAPS_LIMIT_BYTES = 1 << 28, EXEC_RETRIES = 8 };

/* The kernel writes a newline in a path as \012 (fs/proc/task_mmu.c, seq_path with "\n"). A backslash stands for
 * itself, so a file whose name really has those four characters looks the same; it is opened through map_files. */
static void unescape_newlines(char *path) {
    char *to = path;
    for (const char *from = path; *from != '\0';) {
        if (strncmp(from, "\\012", 4) == 0) {
            *to++ = '\n';
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static bool parse_number(char **at, int base, char terminator, uint64_t *value) {
    char *end = NULL;
    *value = strtoull(*at, &end, base);
    if (end == *at || *end != terminator)
        return false;
    *at = end + 1;
    return true;
}

/* start-end rwxp offset major:minor inode   path */
static bool parse_line(char *line, struct mapping *mapping) {
    uint64_t major = 0, minor = 0;
    if (!parse_number(&line, 16, '-', &mapping->start) || !parse_number(&line, 16, ' ', &mapping->end))
        return false;
    if (strnlen(line, 5) < 5 || line[4] != ' ')
        return false;
    mapping->readable = line[0] == 'r';
    mapping->writable = line[1] == 'w';
    mapping->executable = line[2] == 'x';
    line += 5;
    if (!parse_number(&line, 16, ' ', &mapping->file_offset) || !parse_number(&line, 16, ':', &major) ||
        !parse_number(&line, 16, ' ', &minor))
        return false;
    mapping->device = (uint32_t)(major << 20 | minor);

    char *end = NULL;
    mapping->inode = strtoull(line, &end, 10);
    if (end == line)
        return false;
    char *path = end + strspn(end, " ");
    mapping->deleted = proc_cut_deleted(path);
    unescape_newlines(path);
    mapping->path = path;
    return mapping->start < mapping->end;
}

static size_t count_lines(const char *text, size_t size_bytes) {
    size_t count = 0;
    for (const char *at = text; (at = memchr(at, '\n', size_bytes - (size_t)(at - text))) != NULL; at++)
        count++;
    return count;
}

enum status mappings_parse(char *text, size_t size_bytes, struct mappings *mappings) {
    *mappings = (struct mappings){.paths = text};
    size_t lines = count_lines(text, size_bytes);
    mappings->items = calloc(lines + 1, sizeof *mappings->items);
    if (mappings->items == NULL)
        return STATUS_FAILED;
    remote_addr last_end = 0;
    char *line = text;
    for (size_t i = 0; i < lines; i++) {
        char *newline = memchr(line, '\n', size_bytes - (size_t)(line - text));
        *newline = '\0';
        struct mapping *mapping = &mappings->items[mappings->count];
        if (!parse_line(line, mapping))
            return STATUS_DAMAGED;
        /* The kernel walks by address and takes up again where the last read(2) ended; a mapping that grew in between
         * can come twice. */
        if (mapping->start >= last_end) {
            last_end = mapping->end;
            mappings->count++;
        }
        line = newline + 1;
    }
    return STATUS_OK;
}

enum status process_read_mappings(struct process *process, struct mappings *mappings, struct error *error) {
    *mappings = (struct mappings){0};
    struct buffer text;
    buffer_init(&text, MAPS_LIMIT_BYTES);
    enum status status = STATUS_OK;
    /* Empty is what it looks like for a process that is ending, or when an exec came between open and read. */
    for (int i = 0; i < EXEC_RETRIES && status == STATUS_OK && text.size_bytes == 0; i++)
        status = proc_read_whole(process->dir_fd, "maps", &text);
    if (status == STATUS_OK && text.size_bytes == 0)
        status = STATUS_NO_PROCESS;
    if (status != STATUS_OK) {
        buffer_release(&text);
        return error_set(error, status, "cannot read the memory map of process %d: %s", (int)process->pid,
                         status_name(status));
    }
    status = mappings_parse(text.data, text.size_bytes, mappings);
    if (status == STATUS_OK)
        return STATUS_OK;
    mappings_release(mappings);
    return error_set(error, status, "cannot understand the memory map of process %d: %s", (int)process->pid,
                     status_name(status));
}

void mappings_release(struct mappings *mappings) {
    free(mappings->items);
    free(mappings->paths);
    *mappings = (struct mappings){0};
}

const struct mapping *mappings_find(const struct mappings *mappings, remote_addr address) {
    size_t low = 0, high = mappings->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mappings->items[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == mappings->count || mappings->items[low].start > address)
        return NULL;
    return &mappings->items[low];
}
