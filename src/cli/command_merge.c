#include "cli/cli.h"
#include "cli/reporting.h"

#include "capture/copy.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

static const char help[] = "Usage: strobe merge CAPTURE [CAPTURE ...] -o OUT\n"
                           "\n"
                           "Adds captures up into one, OUT. Their processes stand side by side and begin together.\n"
                           "\n"
                           "  -o, --output OUT   the capture to write\n"
                           "  --help             this text\n";

/* What is damaged does not keep the others from being merged. */
static enum status copy_all(const char *const *paths, size_t count, struct capture_writer *writer, struct error *damage,
                            struct error *error) {
    struct capture_merge merge = {0};
    for (size_t i = 0; i < count; i++) {
        enum status status = capture_copy(paths[i], writer, &merge, error);
        if (status != STATUS_DAMAGED)
            TRY(status);
        else
            cli_note_damage(damage, error);
    }
    if (merge.next_process > 0 || damage->status == STATUS_OK)
        return STATUS_OK;
    *error = *damage;
    return error->status;
}

/* A capture is written in place as a rule, to survive its writer; this one can be made again, so it is not there
 * before it is whole. */
static enum status merge_captures(const char *const *paths, size_t count, const char *output, struct error *damage,
                                  struct error *error) {
    struct output_file file;
    struct capture_writer *writer = NULL;
    TRY(output_open(&file, output, error));
    int fd = dup(fileno(file.stream));
    enum status status = fd >= 0 ? capture_writer_open_descriptor(fd, NULL, &writer, error)
                                 : error_set(error, STATUS_FAILED, "cannot write %s: %s", output, strerror(errno));
    if (status == STATUS_OK) {
        status = copy_all(paths, count, writer, damage, error);
        struct error ignored = {0};
        enum status closed = capture_writer_close(writer, status == STATUS_OK ? error : &ignored);
        status = status == STATUS_OK ? closed : status;
    }
    enum status placed = output_close(&file, status == STATUS_OK, error);
    return status == STATUS_OK ? placed : status;
}

int command_merge(int argc, char **argv) {
    static const struct option known[] = {
        {"output", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};
    const char *output = NULL;
    struct error error = {0}, damage = {0};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "ho:", known, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return cli_finish_output();
        }
        if (option != 'o')
            return cli_usage_error("merge", "there is no option '%s', or its value is missing", cli_wrong_word(argv));
        output = optarg;
    }
    if (optind == argc)
        return cli_usage_error("merge", "no capture given");
    if (output == NULL)
        return cli_usage_error("merge", "the capture to write is missing: -o OUT");
    enum status status =
        merge_captures((const char *const *)argv + optind, (size_t)(argc - optind), output, &damage, &error);
    if (status != STATUS_OK)
        return cli_fail(&error);
    return damage.status != STATUS_OK ? cli_fail(&damage) : EXIT_OK;
}
