/* SPDX-License-Identifier: MIT
 *
 * The windows: when one opens and closes, the clock in it, and what is written of it.
 *
 * The agent's two samples of a cell begin with opening /proc/stat, and a cell ends with its result
 * being written to a file that is named after it. Both are seen as calls of __x64_sys_openat.
 */
enum { SYSCALL_SECOND = 104 }; /* offset of the second argument (si) in struct pt_regs */

static const char sampled[] = "/proc/stat", agent[] = "python3";
static const char result[] = "/run/icountvm/results/cells/.";

enum { ARGUMENTS = 3 };
#define NO_TASK 0xffffffffu

struct event {
    u64 at, arguments[ARGUMENTS];
    u32 func, task;
    u16 cpu, interrupt; /* whether in an interrupt, if stacks are followed */
    u32 other;          /* the first task among the arguments that does not run */
};

/* As they are written: a kind and a size in bytes, then one of these. */
enum { RECORD_WINDOW = 1, RECORD_CELL };
struct record {
    u64 kind, size;
};
struct window_record {
    u64 cell, opened, closed, instructions, corrected, idle;
    u64 clock_reads, clock_off, off_by;
    u64 lost_nodes, lost_frames, lost_events;
    u64 n_tasks, n_nodes, n_events;
};
struct task_record {
    int pid, tgid;
    char comm[16];
};
struct cell_record {
    u64 cell, windows;
    char id[64];
};

static void *output;
static struct event *events;
static u64 n_events, most_events, lost_events;
static struct {
    u64 base, idle; /* the clock is base + executed instructions + idle */
    u64 reads, off, off_by;
    _Bool known;
} guest_clock;
static u64 cell;           /* number of the cell that is running */
static u32 samples;        /* of that cell */
static u64 wanted[64]; /* bits of the cells whose windows are wanted */
static struct window_record begun;

static void charge(u32 index);

static u64 executed(void)
{
    u64 sum = 0;
    for (u32 n = 0; n < n_cpus; n++)
        sum += flat ? flat_executed(n) : cpus[n].counts->instructions - cpus[n].corrected;
    return sum;
}

static u64 corrected(void)
{
    u64 sum = 0;
    for (u32 n = 0; n < n_cpus; n++)
        sum += cpus[n].corrected;
    return sum;
}

static u64 now(void)
{
    return guest_clock.base + executed() + guest_clock.idle;
}

/* The guest has read its clock: compare it with the instructions. Halted processors let it jump. */
static void read_clock(void)
{
    u64 clock = register_of(RDX) << 32 | (register_of(RAX) & 0xffffffffull);
    s64 difference = (s64)(clock - now());
    _Bool halted = 0;
    for (u32 n = 0; n < n_cpus; n++) {
        halted |= cpus[n].counts->halted != 0;
        cpus[n].counts->halted = 0;
    }
    guest_clock.reads++;
    if (!difference)
        return;
    if (!guest_clock.known) {
        guest_clock.known = 1;
        guest_clock.base += difference;
    } else if (halted && difference > 0) {
        guest_clock.idle += difference;
    } else {
        guest_clock.off++;
        guest_clock.off_by += difference < 0 ? -difference : difference;
        guest_clock.base += difference;
    }
}

static void write_record(u64 kind, u64 size)
{
    struct record head = {kind, size};
    fwrite(&head, sizeof head, 1, output);
}

static struct window_record totals(void)
{
    struct window_record all = {.cell = cell, .opened = now(), .instructions = executed()};
    all.corrected = corrected();
    all.idle = guest_clock.idle;
    all.clock_reads = guest_clock.reads;
    all.clock_off = guest_clock.off;
    all.off_by = guest_clock.off_by;
    return all;
}

static void open_window(void)
{
    static u32 windows;
    for (u32 n = 0; n < n_cpus; n++)
        charge(n);
    n_nodes = 0;
    n_events = lost_events = lost_nodes = lost_frames = 0;
    window = ++windows;
    begun = totals();
    for (u32 n = 0; n < n_cpus; n++)
        read_name(cpus[n].task);
}

static void write_window(const struct window_record *end)
{
    struct window_record all = *end;
    all.opened = begun.opened;
    all.closed = end->opened;
    all.instructions -= begun.instructions;
    all.corrected -= begun.corrected;
    all.idle -= begun.idle;
    all.clock_reads -= begun.clock_reads;
    all.clock_off -= begun.clock_off;
    all.off_by -= begun.off_by;
    all.lost_nodes = lost_nodes;
    all.lost_frames = lost_frames;
    all.lost_events = lost_events;
    all.n_tasks = n_tasks;
    all.n_nodes = n_nodes;
    all.n_events = n_events;
    write_record(RECORD_WINDOW, sizeof all + n_tasks * sizeof(struct task_record) +
                                    n_nodes * sizeof *nodes + n_events * sizeof *events);
    fwrite(&all, sizeof all, 1, output);
    for (u32 n = 0; n < n_tasks; n++) {
        struct task_record one = {tasks[n]->pid, tasks[n]->tgid, {0}};
        memcpy(one.comm, tasks[n]->comm, sizeof one.comm);
        fwrite(&one, sizeof one, 1, output);
    }
    fwrite(nodes, sizeof *nodes, n_nodes, output);
    fwrite(events, sizeof *events, n_events, output);
    fflush(output);
}

static void close_window(void)
{
    for (u32 n = 0; n < n_cpus; n++)
        charge(n);
    struct window_record end = totals();
    for (u32 n = 0; n < n_tasks && flat; n++)
        for (u32 c = 0; c < n_cpus; c++)
            make_nodes(tasks[n], c);
    for (u32 n = 0; n < n_tasks; n++)
        for (u32 c = 0; c < n_cpus; c++)
            if (tasks[n]->stamps[c] == window * MOST_CPUS + c)
                nodes[tasks[n]->roots[c]].sibling = c;
    for (u32 n = 0; n < n_tasks; n++)
        if (tasks[n]->address && tasks[n]->named == window)
            read_name(tasks[n]);
    write_window(&end);
    window = 0;
    n_nodes = 0;
}

static void opened(u32 index, u64 name)
{
    char path[128];
    if (strncmp(cpus[index].task->comm, agent, sizeof agent - 1))
        return;
    read_string(name, path, sizeof path);
    if (!strcmp(path, sampled)) {
        _Bool want = cell < 4096 && wanted[cell / 64] >> (cell % 64) & 1;
        if (want && samples == 0)
            open_window();
        else if (window && samples == 1)
            close_window();
        samples++;
    } else if (!strncmp(path, result, sizeof result - 1)) {
        struct cell_record one = {cell, window ? 0 : samples, {0}};
        snprintf(one.id, sizeof one.id, "%.63s", path + sizeof result - 1);
        write_record(RECORD_CELL, sizeof one);
        fwrite(&one, sizeof one, 1, output);
        fflush(output);
        window = 0;
        samples = 0;
        cell++;
    }
}

/* Return the number of the first task among the arguments of a call, but for the one that runs. */
static u32 other_task(const struct task *running, const u64 *arguments)
{
    for (u32 n = 0; n < ARGUMENTS; n++) {
        struct task *other = known_task(arguments[n]);
        if (!other || other == running)
            continue;
        if (other->named != window)
            read_name(other);
        return other->number;
    }
    return NO_TASK;
}

static _Bool in_interrupt(const struct task *task)
{
    for (u32 n = 0; n < task->depth; n++)
        if (task->frames[n].func < n_interrupts && interrupts[task->frames[n].func])
            return 1;
    return 0;
}

/* Record a call, with its first arguments. */
static void record_event(u32 index, u32 func)
{
    if (n_events == most_events) {
        lost_events++;
        return;
    }
    const struct task *running = cpus[index].task;
    struct event *one = &events[n_events++];
    *one = (struct event){
        .at = now(),
        .arguments = {register_of(RDI), register_of(RSI), register_of(RDX)},
        .func = func,
        .task = running->number,
        .cpu = (u16)index,
        .interrupt = in_interrupt(running),
    };
    one->other = other_task(running, one->arguments);
}
