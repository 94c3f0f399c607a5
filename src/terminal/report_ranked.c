/* The tables whose rows are sorted by what they cost: functions, native functions, threads, processes. */
#include "terminal/cells.h"
#include "terminal/report_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A native function is worth a row from so many thousandths of the whole on. */
enum { FUNCTION_ROWS = 15, NATIVE_ROWS = 8, NATIVE_SHARE = 10, THREAD_ROWS = 20, PROCESS_ROWS = 20 };

const char *report_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* One of these tables. */
struct ranked_table {
    const char *what; /* one row's name */
    size_t first;     /* index, of those that there may be anything of */
    size_t count;     /* how many these are */
    size_t most;      /* at most so many rows */
    unsigned least;   /* thousandths of the whole that a row needs */
    enum report_total total;
    const uint64_t *(*self)(const struct report_writer *writer, size_t index);
    const uint64_t *(*totals)(const struct report_writer *writer, size_t index);
    /* What stands behind the figures, into writer->scratch. */
    enum status (*name)(struct report_writer *writer, size_t index);
};

static enum status put_row(struct report_writer *writer, const struct ranked_table *table, size_t index) {
    size_t used = report_width_before_text(writer) + 2;
    TRY(report_append_figures(writer, table->self(writer, index), table->totals(writer, index), table->total));
    TRY(buffer_append_text(&writer->row, "  "));
    buffer_clear(&writer->scratch);
    TRY(table->name(writer, index));
    TRY(cell_append_text(&writer->row, buffer_text(&writer->scratch), writer->scratch.size_bytes,
                         report_text_width(writer, used)));
    report_put_row(writer);
    return STATUS_OK;
}

/* Those with any cost. */
static size_t rank(const struct report_writer *writer, const struct ranked_table *table, struct ranked *ranked) {
    size_t count = 0;
    for (size_t i = table->first; i < table->first + table->count; i++) {
        uint64_t self = table->self(writer, i)[writer->main], total = table->totals(writer, i)[writer->main];
        uint64_t wait = writer->has_parts ? table->self(writer, i)[MEASURE_WAIT_NS] : 0;
        if (self > 0 || total > 0 || wait > 0)
            ranked[count++] = (struct ranked){(double)self, total > 0 ? total : wait, i};
    }
    report_rank(ranked, count);
    return count;
}

static enum status put_rows(struct report_writer *writer, const struct ranked_table *table, const struct ranked *ranked,
                            size_t count) {
    uint64_t rest = 0, whole = writer->attribution.sums[writer->main];
    size_t shown = 0, rest_count = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t self = table->self(writer, ranked[i].index)[writer->main];
        if (shown == table->most || (table->least > 0 && !report_is_share(self, whole, table->least))) {
            rest += self;
            rest_count += self > 0;
            continue;
        }
        if (shown++ == 0) {
            putc('\n', writer->stream);
            TRY(report_append_heads(writer));
            TRY(buffer_append_format(&writer->row, "  %s", table->what));
            report_put_row(writer);
        }
        TRY(put_row(writer, table, ranked[i].index));
    }
    return rest > 0 && shown > 0 ? report_put_rest(writer, rest, rest_count, table->what) : STATUS_OK;
}

static enum status put_table(struct report_writer *writer, const struct ranked_table *table) {
    struct ranked *ranked = calloc(table->count + 1, sizeof ranked[0]);
    if (ranked == NULL)
        return STATUS_FAILED;
    enum status status = put_rows(writer, table, ranked, rank(writer, table, ranked));
    free(ranked);
    return status;
}

static const uint64_t *no_totals(const struct report_writer *writer, size_t index) {
    static const uint64_t NOTHING[MEASURE_COUNT];
    (void)writer;
    (void)index;
    return NOTHING;
}

/* ------------------------------------------------------------------------------------------------ functions --- */

static const uint64_t *function_self(const struct report_writer *writer, size_t index) {
    return writer->attribution.functions[index].self;
}

static const uint64_t *function_total(const struct report_writer *writer, size_t index) {
    return writer->attribution.functions[index].total;
}

static enum status name_function(struct report_writer *writer, size_t index) {
    const struct attribute_row *row = &writer->attribution.functions[index];
    const char *name = row->qualname[0] != '\0' ? row->qualname : row->function;
    TRY(buffer_append_format(&writer->scratch, "%s  %s", name, report_base_name(row->file)));
    return row->first_line > 0 ? buffer_append_format(&writer->scratch, ":%" PRId32, row->first_line) : STATUS_OK;
}

enum status report_put_functions(struct report_writer *writer) {
    const struct ranked_table table = {.what = "function",
                                       .count = writer->attribution.function_count,
                                       .most = FUNCTION_ROWS,
                                       .total = REPORT_TOTAL_ALWAYS,
                                       .self = function_self,
                                       .totals = function_total,
                                       .name = name_function};
    return put_table(writer, &table);
}

/* ------------------------------------------------------------------------------------------------ natives ----- */

static const uint64_t *native_self(const struct report_writer *writer, size_t index) {
    return writer->attribution.native_functions[index].self;
}

static enum status name_native(struct report_writer *writer, size_t index) {
    const struct attribute_native *native = &writer->attribution.native_functions[index];
    return buffer_append_format(&writer->scratch, "%s%s%s", native->function, native->function[0] != '\0' ? "  " : "",
                                report_base_name(native->library));
}

/* Only how much it was: that it was native goes without saying. */
enum status report_put_natives(struct report_writer *writer) {
    size_t all_columns = writer->column_count, kept = 0;
    const struct ranked_table table = {.what = "native function",
                                       .count = writer->attribution.native_function_count,
                                       .most = NATIVE_ROWS,
                                       .least = NATIVE_SHARE,
                                       .self = native_self,
                                       .totals = no_totals,
                                       .name = name_native};
    while (kept < all_columns && writer->columns[kept].measure == writer->main)
        kept++;
    writer->column_count = kept;
    enum status status = put_table(writer, &table);
    writer->column_count = all_columns;
    return status;
}

/* ------------------------------------------------------------------------------------------------ threads ----- */

static const uint64_t *thread_self(const struct report_writer *writer, size_t index) {
    return attribute_share(&writer->attribution.threads, index);
}

static enum status name_thread(struct report_writer *writer, size_t index) {
    const struct profile_thread *thread = &writer->profile->threads[index];
    const char *name = thread->name[0] != '\0' ? thread->name : "?";
    /* Room for the number, which tells threads of one name apart. */
    size_t width = report_text_width(writer, report_width_before_text(writer) + 2 + 20);
    if (writer->profile->process_count > 1)
        TRY(buffer_append_format(&writer->scratch, "[%" PRId32 "] ", writer->profile->processes[thread->process].pid));
    TRY(cell_append_text(&writer->scratch, name, strlen(name), width));
    return buffer_append_format(&writer->scratch, " (%" PRIu64 ")",
                                thread->native_id != 0 ? thread->native_id : thread->thread_id);
}

enum status report_put_threads(struct report_writer *writer) {
    const struct ranked_table table = {.what = "thread",
                                       .first = writer->attribution.threads.first,
                                       .count = writer->attribution.threads.count,
                                       .most = THREAD_ROWS,
                                       .self = thread_self,
                                       .totals = no_totals,
                                       .name = name_thread};
    return writer->profile->thread_count > 1 ? put_table(writer, &table) : STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ processes --- */

static const uint64_t *process_self(const struct report_writer *writer, size_t index) {
    return attribute_share(&writer->attribution.processes, index);
}

static enum status name_process(struct report_writer *writer, size_t index) {
    const struct profile_process *process = &writer->profile->processes[index];
    TRY(buffer_append_format(&writer->scratch, "%" PRId32 " ", process->pid));
    for (size_t i = 0; i < process->command_count && writer->scratch.size_bytes < REPORT_COMMAND_BYTES; i++)
        TRY(buffer_append_format(&writer->scratch, " %s",
                                 i == 0 ? report_base_name(process->command[i]) : process->command[i]));
    return STATUS_OK;
}

enum status report_put_processes(struct report_writer *writer) {
    const struct ranked_table table = {.what = "process",
                                       .first = writer->attribution.processes.first,
                                       .count = writer->attribution.processes.count,
                                       .most = PROCESS_ROWS,
                                       .self = process_self,
                                       .totals = no_totals,
                                       .name = name_process};
    return writer->profile->process_count > 1 ? put_table(writer, &table) : STATUS_OK;
}
