#include "cli/cli.h"
#include "cli/reporting.h"

#include <getopt.h>

static const char help[] = "Usage: strobe report [OPTIONS] CAPTURE [CAPTURE ...]\n"
                           "\n"
                           "Makes a report from what was captured; several captures are added up.\n"
                           "\n";

int command_report(int argc, char **argv) {
    static const struct option known[] = {REPORT_LONG_OPTIONS, {"help", no_argument, NULL, 'h'}, {0}};
    struct report_options options = {0};
    const char *problem = NULL;
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "hf:o:", known, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            fputs(report_options_help, stdout);
            fputs("  --help             this text\n", stdout);
            return cli_finish_output();
        }
        if (!report_take_option(&options, option, optarg, &problem))
            return cli_usage_error("report", "there is no option '%s', or its value is missing", cli_wrong_word(argv));
        if (problem != NULL)
            return cli_usage_error("report", "%s: '%s'", problem, optarg);
    }
    if (optind == argc)
        return cli_usage_error("report", "no capture given");
    const char *conflict = report_complete_options(&options);
    if (conflict != NULL)
        return cli_usage_error("report", "%s", conflict);
    return report_captures((const char *const *)argv + optind, (size_t)(argc - optind), &options);
}
