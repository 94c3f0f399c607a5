/* The report: its head, then the tables one after the other. What is too cheap to matter is summed up in a line of its
 * own, so that the figures still add up to the whole. */
#include "terminal/report_table.h"

#include "terminal/cells.h"
#include "terminal/report_writer.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

/* ------------------------------------------------------------------------------------------------ head -------- */

static enum status append_command(struct report_writer *writer, const struct profile_process *process) {
    buffer_clear(&writer->scratch);
    /* Beyond that nothing is shown. */
    for (size_t i = 0; i < process->command_count && writer->scratch.size_bytes < REPORT_COMMAND_BYTES; i++) {
        TRY(buffer_append_text(&writer->scratch, process->command[i]));
        if (i + 1 < process->command_count)
            TRY(buffer_append_char(&writer->scratch, ' '));
    }
    return cell_append_text(&writer->row, buffer_text(&writer->scratch), writer->scratch.size_bytes,
                            writer->options->width);
}

static enum status put_process(struct report_writer *writer) {
    const struct profile *profile = writer->profile;
    if (profile->process_count == 0)
        return STATUS_OK;
    const struct profile_process *process = &profile->processes[0];
    uint32_t version = process->python_version;
    TRY(report_style(writer, "1"));
    TRY(append_command(writer, process));
    TRY(report_style(writer, "0"));
    report_put_row(writer);
    TRY(buffer_append_format(&writer->row, "process %" PRId32, process->pid));
    if (profile->process_count > 1)
        TRY(buffer_append_format(&writer->row, " and %zu more", profile->process_count - 1));
    if (version != 0)
        TRY(buffer_append_format(&writer->row, ", Python %u.%u%s", version >> 24, version >> 16 & 0xff,
                                 process->free_threaded ? " free-threaded" : ""));
    TRY(buffer_append_format(&writer->row, ", %" PRIu64 ".%" PRIu64 " s", profile->elapsed_ns / 1000000000,
                             profile->elapsed_ns / 100000000 % 10));
    if (process->rate_hz > 0)
        TRY(buffer_append_format(&writer->row, " at %.0f Hz", process->rate_hz));
    if (process->ended && WIFSIGNALED(process->wait_status))
        TRY(buffer_append_format(&writer->row, ", ended by signal %d", WTERMSIG(process->wait_status)));
    else if (process->ended && process->wait_status != 0)
        TRY(buffer_append_format(&writer->row, ", exit status %d", WEXITSTATUS(process->wait_status)));
    report_put_row(writer);
    return STATUS_OK;
}

/* In words a 0 is said, where a cell is left blank. */
static enum status append_amount(struct buffer *to, uint64_t amount, enum measure_unit unit) {
    return amount > 0 ? cell_append_amount(to, amount, unit, 0)
                      : buffer_append_text(to, unit == UNIT_NS ? "0 s" : "0 B");
}

/* Nothing is said of parts where all that there is was seen from outside, of the one thread that is shown, say. */
static bool are_parts_known(const struct report_writer *writer) {
    uint64_t parts = 0;
    for (size_t i = 0; i < REPORT_PARTS; i++)
        parts |= writer->attribution.sums[report_parts[i].measure];
    return parts > 0;
}

/* What the CPU time was spent on in all; says, too, what the bars' parts are. */
static enum status put_parts(struct report_writer *writer) {
    const uint64_t *sums = writer->attribution.sums;
    TRY(buffer_append_text(&writer->row, "CPU "));
    TRY(append_amount(&writer->row, sums[MEASURE_CPU_NS], UNIT_NS));
    for (size_t i = 0; i < REPORT_PARTS && are_parts_known(writer); i++) {
        const struct report_part *part = &report_parts[i];
        TRY(buffer_append_text(&writer->row, i == 0 ? ": " : "  "));
        TRY(report_append_styled(writer, part->colour, writer->options->colour ? "█" : part->glyph));
        TRY(buffer_append_format(&writer->row, " %s ", part->name));
        TRY(cell_append_percent(&writer->row, sums[part->measure], sums[MEASURE_CPU_NS], 0));
        if (sums[part->measure] == 0)
            TRY(buffer_append_text(&writer->row, "0%"));
    }
    report_put_row(writer);
    return STATUS_OK;
}

static enum status put_waiting(struct report_writer *writer) {
    const uint64_t *sums = writer->attribution.sums;
    TRY(buffer_append_text(&writer->row, "waited "));
    TRY(cell_append_amount(&writer->row, sums[MEASURE_WAIT_NS], UNIT_NS, 0));
    if (sums[MEASURE_GIL_WAIT_NS] > 0) {
        TRY(buffer_append_text(&writer->row, ", of it for the GIL "));
        TRY(cell_append_amount(&writer->row, sums[MEASURE_GIL_WAIT_NS], UNIT_NS, 0));
    }
    report_put_row(writer);
    return STATUS_OK;
}

/* What no allocator told of was mapped by one of its own (polars, arrow): the process had it at its peak, no line has.
 */
static enum status append_footprint(struct report_writer *writer, uint64_t by_line_bytes) {
    const struct profile_memory *memory = &writer->profile->processes[0].memory;
    if (writer->profile->process_count != 1 || writer->options->attribute == NULL || writer->thread != ATTRIBUTE_ANY ||
        memory->peak_bytes / 2 <= by_line_bytes)
        return STATUS_OK;
    TRY(buffer_append_text(&writer->scratch, " by line (of "));
    TRY(cell_append_amount(&writer->scratch, memory->peak_bytes, UNIT_BYTES, 0));
    return buffer_append_text(&writer->scratch, " in all)");
}

/* Of the peak it is said also that no line had any of it, where there was one. */
static bool has_fact(const struct report_writer *writer, enum measure measure) {
    const struct profile *profile = writer->profile;
    bool peaked = measure == MEASURE_PEAK_BYTES && profile->process_count == 1 &&
                  profile->processes[0].memory.peak_bytes > 0 && profile_has(profile, MEASURE_ALLOC_BYTES);
    return peaked || writer->attribution.sums[measure] > 0;
}

static enum status put_memory(struct report_writer *writer) {
    static const struct {
        enum measure measure;
        const char *words;
    } FACTS[] = {{MEASURE_ALLOC_BYTES, "allocated"},
                 {MEASURE_PEAK_BYTES, "at the peak"},
                 {MEASURE_LIVE_BYTES, "live at the end"},
                 {MEASURE_COPY_BYTES, "copied"}};
    const uint64_t *sums = writer->attribution.sums;
    const char *before = "memory: ";
    size_t width = writer->options->width;
    for (size_t i = 0; i < sizeof FACTS / sizeof FACTS[0]; i++) {
        if (!has_fact(writer, FACTS[i].measure))
            continue;
        buffer_clear(&writer->scratch);
        TRY(buffer_append_text(&writer->scratch, before));
        TRY(append_amount(&writer->scratch, sums[FACTS[i].measure], UNIT_BYTES));
        TRY(buffer_append_format(&writer->scratch, " %s", FACTS[i].words));
        if (FACTS[i].measure == MEASURE_PEAK_BYTES)
            TRY(append_footprint(writer, sums[MEASURE_PEAK_BYTES]));
        if (width > 0 && writer->row.size_bytes > 0 && writer->row.size_bytes + writer->scratch.size_bytes >= width) {
            TRY(buffer_append_char(&writer->row, ','));
            report_put_row(writer);
            TRY(buffer_append_text(&writer->row, "       "));
            TRY(buffer_append(&writer->row, writer->scratch.data + 1, writer->scratch.size_bytes - 1));
        } else {
            TRY(buffer_append(&writer->row, writer->scratch.data, writer->scratch.size_bytes));
        }
        before = ", ";
    }
    if (writer->row.size_bytes > 0)
        report_put_row(writer);
    return STATUS_OK;
}

enum { LEAKS_SHOWN = 5 };

/* Where there is room for it. */
static enum status append_survivors(struct report_writer *writer, const struct leak *leak) {
    size_t width = writer->options->width;
    buffer_clear(&writer->scratch);
    TRY(buffer_append_text(&writer->scratch, " in "));
    TRY(cell_append_count(&writer->scratch, leak->survivors));
    TRY(buffer_append_format(&writer->scratch, " blocks, half of it for %.1f s", leak->verdict.age_s));
    if (width > 0 && writer->row.size_bytes + writer->scratch.size_bytes > width)
        return STATUS_OK;
    return buffer_append(&writer->row, writer->scratch.data, writer->scratch.size_bytes);
}

/* Lines that hold more and more, fastest first. */
static enum status put_leaks(struct report_writer *writer) {
    const struct line_memory *memory = &writer->attribution.memory;
    for (size_t i = 0; i < memory->leak_count && i < LEAKS_SHOWN; i++) {
        const struct leak *leak = &memory->leaks[i];
        TRY(report_append_styled(writer, "33", "likely leak: "));
        TRY(cell_append_text(&writer->row, report_base_name(leak->file), strlen(report_base_name(leak->file)), 0));
        TRY(buffer_append_format(&writer->row, ":%" PRId32 " ", leak->line));
        TRY(cell_append_amount(&writer->row, (uint64_t)leak->verdict.bytes_per_s, UNIT_BYTES, 0));
        TRY(buffer_append_format(&writer->row, " more each second (%.0f%%), ", leak->verdict.likelihood * 100));
        TRY(cell_append_amount(&writer->row, leak->live_bytes, UNIT_BYTES, 0));
        TRY(buffer_append_text(&writer->row, " live"));
        TRY(append_survivors(writer, leak));
        report_put_row(writer);
    }
    if (memory->leak_count > LEAKS_SHOWN) {
        TRY(buffer_append_format(&writer->row, "and %zu more lines that leak", memory->leak_count - LEAKS_SHOWN));
        report_put_row(writer);
    }
    return STATUS_OK;
}

static enum status append_counter(struct report_writer *writer, uint64_t count, const char *what, bool is_bad) {
    TRY(report_style(writer, is_bad && count > 0 ? "33" : "0"));
    TRY(cell_append_count(&writer->row, count));
    TRY(buffer_append_text(&writer->row, what));
    return report_style(writer, "0");
}

/* What memory records found no room for. */
static enum status put_lost_memory(struct report_writer *writer) {
    uint64_t lost = writer->lost_records;
    if (lost == 0)
        return STATUS_OK;
    TRY(buffer_append_text(&writer->row, "memory: "));
    const char *what = lost == 1 ? " record lost; what it tells of is under <lost>"
                                 : " records lost; what they tell of is under <lost>";
    TRY(append_counter(writer, lost, what, true));
    report_put_row(writer);
    return STATUS_OK;
}

/* How far the figures may be trusted. */
static enum status put_honesty(struct report_writer *writer) {
    const struct capture_counters *counters = &writer->profile->counters;
    const struct capture_damage *damage = &writer->profile->damage;
    TRY(buffer_append_text(&writer->row, "samples: "));
    TRY(append_counter(writer, counters->taken, " taken, ", false));
    TRY(append_counter(writer, counters->missed, " missed, ", true));
    TRY(append_counter(writer, counters->inconsistent, " inconsistent, ", true));
    TRY(append_counter(writer, counters->errors, " failed", true));
    report_put_row(writer);
    TRY(put_lost_memory(writer));
    if (damage->lost_bytes > 0 || damage->lost_chunks > 0 || damage->lost_records > 0 || !damage->ended) {
        TRY(report_append_styled(writer, "33",
                                 damage->ended ? "The capture is damaged: this is what could be read of it."
                                               : "The capture has no end: strobe was cut off, or the file was."));
        report_put_row(writer);
    }
    return STATUS_OK;
}

static enum status put_head(struct report_writer *writer) {
    TRY(put_process(writer));
    if (profile_has(writer->profile, MEASURE_CPU_NS))
        TRY(put_parts(writer));
    if (writer->attribution.sums[MEASURE_WAIT_NS] > 0)
        TRY(put_waiting(writer));
    TRY(put_memory(writer));
    TRY(put_leaks(writer));
    return put_honesty(writer);
}

/* ------------------------------------------------------------------------------------------------ all --------- */

static bool is_filtered(const struct report_writer *writer) {
    const struct attribute_options *attribute = writer->options->attribute;
    return attribute != NULL && attribute->only_count + attribute->exclude_count > 0;
}

/* What only and exclude left nothing of, and threads without any frame: said, so that nothing is missing unsaid. */
static enum status put_left_out(struct report_writer *writer) {
    uint64_t left_out = writer->attribution.left_out[writer->main];
    if (left_out == 0)
        return STATUS_OK;
    putc('\n', writer->stream);
    TRY(cell_append_amount(&writer->row, left_out, measure_unit(writer->main), CELL_AMOUNT_WIDTH));
    TRY(buffer_append_text(&writer->row, is_filtered(writer)
                                             ? " left out: by --only and --exclude, or no frame to charge it to"
                                             : " left out: no frame to charge it to"));
    report_put_row(writer);
    return STATUS_OK;
}

static enum status put_tables(struct report_writer *writer) {
    TRY(put_head(writer));
    if (writer->attribution.line_count == 0) {
        TRY(buffer_append_text(&writer->row, is_filtered(writer) ? "nothing is left to show" : "nothing was measured"));
        report_put_row(writer);
        return put_left_out(writer);
    }
    TRY(report_put_files(writer));
    TRY(report_put_functions(writer));
    TRY(report_put_natives(writer));
    TRY(report_put_threads(writer));
    TRY(report_put_processes(writer));
    return put_left_out(writer);
}

/* Threads that wait for work are most of many programs' wall time, and nobody's trouble. */
static enum measure choose_main(const struct report_writer *writer) {
    if (writer->options->main != NULL)
        return *writer->options->main;
    enum measure main = profile_main_measure(writer->profile);
    bool is_left_out = main == MEASURE_WALL_NS && !writer->options->with_idle &&
                       writer->attribution.sums[MEASURE_CPU_NS] > 0 && writer->attribution.sums[MEASURE_WAIT_NS] > 0;
    return is_left_out ? MEASURE_CPU_NS : main;
}

static void begin(struct report_writer *writer) {
    const struct profile *profile = writer->profile;
    buffer_init(&writer->row, REPORT_ROW_LIMIT_BYTES);
    buffer_init(&writer->scratch, REPORT_ROW_LIMIT_BYTES);
    for (size_t i = 0; i < profile->process_count; i++)
        writer->lost_records += profile->processes[i].memory.lost_records;
}

/* What is attributed, which it releases. */
static enum status put_report(struct report_writer *writer) {
    writer->main = choose_main(writer);
    writer->column_count = 0;
    writer->syntax_file = NULL;
    report_choose_columns(writer);
    enum status status = put_tables(writer);
    attribution_release(&writer->attribution);
    return status;
}

static enum status end(struct report_writer *writer, enum status status, struct error *error) {
    buffer_release(&writer->row);
    buffer_release(&writer->scratch);
    if (status != STATUS_OK)
        return error_set(error, status, "no memory left for the report");
    return ferror(writer->stream) ? error_set(error, STATUS_FAILED, "the report could not be written") : STATUS_OK;
}

enum status report_table_write(const struct profile *profile, const struct report_table_options *options, FILE *stream,
                               struct error *error) {
    int64_t thread = options->attribute != NULL ? options->attribute->thread : ATTRIBUTE_ANY;
    struct report_writer writer = {.profile = profile, .options = options, .stream = stream, .thread = thread};
    TRY(attribute_profile(profile, options->attribute, &writer.attribution, error));
    begin(&writer);
    return end(&writer, put_report(&writer), error);
}

static enum status put_each_thread(struct report_writer *writer, struct attributor *attributor) {
    const char *between = "";
    for (size_t i = 0; i < writer->profile->thread_count; i++) {
        const struct profile_thread *thread = &writer->profile->threads[i];
        if (!attributor_has_thread(attributor, i))
            continue;
        fprintf(writer->stream, "%sthread %s (%" PRIu64 ")\n", between, thread->name[0] != '\0' ? thread->name : "?",
                thread->native_id != 0 ? thread->native_id : thread->thread_id);
        writer->thread = (int64_t)i;
        TRY(attributor_run(attributor, writer->thread, &writer->attribution, NULL));
        TRY(put_report(writer));
        between = "\n\n";
    }
    return STATUS_OK;
}

enum status report_table_write_threads(const struct profile *profile, const struct report_table_options *options,
                                       FILE *stream, struct error *error) {
    struct report_writer writer = {.profile = profile, .options = options, .stream = stream};
    struct attributor *attributor = NULL;
    TRY(attributor_new(profile, options->attribute, &attributor, error));
    begin(&writer);
    enum status status = put_each_thread(&writer, attributor);
    attributor_free(attributor);
    return end(&writer, status, error);
}
