/* SPDX-License-Identifier: MIT
 *
 * The observer: a plugin of QEMU that counts the guest's instructions and calls by task and stack.
 *
 * It sees every instruction and changes none, and the guest's clock counts the guest's instructions
 * only: what is measured is the same with it and without. Three inline operations run with each
 * translated block: a comparison of the block's function with the one that runs, an addition of its
 * instructions, and a store of which block it is. Only when the function differs (a call, a return,
 * an interrupt, a jump) is anything called. A call or a return also leaves a mark in the place
 * of the running function, so that the next block is seen whatever its function.
 *
 * Without stacks (flat.h) the additions go to the function, and little is called at all.
 */
#include "api.h"

#include "guest.h"
#include "symbols.h"

#include "stacks.h"

#include "modules.h"

/* A translated block. */
struct block {
    u64 address;
    u32 func, flags;
    u64 mark;    /* that its last instruction leaves; 0: none */
    u16 n;       /* instructions that are counted at its begin */
    u8 starts;   /* whether it begins a function */
    u8 halts;    /* whether its last instruction halts the processor */
    u32 slot;    /* of its function, if stacks are not followed */
    u8 sizes[1]; /* of its instructions, in bytes */
};

/* What a processor's inline operations change. */
struct counts {
    u64 instructions;
    u64 running; /* number of the running function, or a mark */
    u64 block;
    u64 halted;
    u64 clock; /* flat: the address after an instruction that has read the clock, or 0 */
};

/* Before the first switch of tasks the kernel also runs at the physical addresses of its text
 * (arch/x86/kernel/head_64.S), and QEMU executes a block of one address at the other, too. */
#define PHYSICAL_TEXT 0x1000000ull
#define TEXT 0xffffffff81000000ull
enum { PAGE_OFFSET = 0xfff };
enum { FETCHING = 1 << 4 }; /* bit of a page fault's error code */

enum { MARK_CALL = 1, MARK_RETURN, MARK_IRET, MARK_CLOCK };
#define MARK(kind, address) ((u64)(kind) << 56 | ((address)&0xffffffffffffull))
#define MARKED(mark) ((int)((mark) >> 56))

struct cpu {
    struct counts *counts;
    struct task *task;
    u64 charged;   /* the instructions that are in a tree, or came before the window */
    u64 corrected; /* instructions that a block counted at its begin and did not execute */
};

static struct scoreboard *score;
static struct counts *counts; /* by processor */
static struct cpu cpus[MOST_CPUS];
static u32 n_cpus;
static _Bool has_switched;

/* Return memory below 2 GiB: the inline operations' addresses, and what they store, are then short
 * in the processor's instructions. */
static void *low_memory(size_t size)
{
    enum { READ_WRITE = 3, PRIVATE = 2, ANONYMOUS = 0x20, LOW = 0x40 };
    void *found = mmap(NULL, size, READ_WRITE, PRIVATE | ANONYMOUS | LOW, -1, 0);
    return found == (void *)-1 ? NULL : found;
}

#include "flat.h"

#include "window.h"

#include "kept.h"

int EXPORT qemu_plugin_version = API_VERSION;

static u64 low48(u64 address)
{
    return address & 0xffffffffffffull;
}

/* Put what was executed since the last charge to the top of the running task's stack. */
static void charge(u32 index)
{
    struct cpu *cpu = &cpus[index];
    if (flat) {
        fold(cpu->task, index);
        return;
    }
    u64 now = cpu->counts->instructions;
    if (window && now != cpu->charged)
        add_instructions(cpu->task, index, now - cpu->charged);
    cpu->charged = now;
}

static void arrive(u32 index, u64 mark, u64 address, const struct symbol *at, _Bool starts)
{
    struct task *task = cpus[index].task;
    _Bool in_user = !task->depth || task->frames[0].func == USER;
    if (at->flags & IS_USER) {
        /* A program's functions stand below USER, without their callers. */
        if (!in_user || !task->depth) {
            task->depth = 0;
            push(task, USER, ROOT, 0);
        }
        task->depth = 1;
        if (at->id != USER) {
            push(task, at->id, CALLED, 0);
            if (starts)
                count_call(task, index);
        }
        return;
    }
    if (in_user) {
        task->depth = 0;
        push(task, at->id, ROOT, 0);
        count_call(task, index);
        return;
    }
    if (MARKED(mark) == MARK_CALL) {
        push(task, at->id, CALLED, low48(mark));
        count_call(task, index);
        return;
    }
    _Bool known = 1;
    if (MARKED(mark) == MARK_RETURN)
        known = pop_call(task, low48(address));
    else if (MARKED(mark) == MARK_IRET)
        known = pop_interrupt(task, low48(address));
    if (!known && task->frames[0].kind == STARTED)
        task->depth = 0;
    else if (!known && MARKED(mark) == MARK_RETURN && starts && task->depth > 1)
        task->depth--; /* a retpoline: its return goes where it wrote over the last call */
    else if (!known && !pop_into(task, at->id) && MARKED(mark) == MARK_RETURN)
        begin_broken(task);
    if (!task->depth || (task->depth == 1 && task->frames[0].func == BROKEN)) {
        push(task, at->id, task->depth ? CALLED : ROOT, 0);
    } else if (task->frames[task->depth - 1].func != at->id) {
        rename_top(task, at->id);
        if (starts)
            count_call(task, index);
    }
}

/* Where an interrupt or exception came: its frame on the stack names the next instruction. */
static u64 interrupted_at(const struct block *block)
{
    return word_at(register_of(RSP) + (block->flags & HAS_ERROR ? 8 : 0));
}

/* Return how many instructions of the last block a fault left to be executed again, and take them off
 * what was counted at the block's begin. */
static u64 take_off(u32 index, const struct block *block, u64 address)
{
    struct cpu *cpu = &cpus[index];
    u64 error = block->flags & HAS_ERROR ? word_at(register_of(RSP)) : 0;
    const struct block *last = (const void *)cpu->counts->block;
    /* If the fault was in fetching an instruction, the last block was executed to its end. */
    if (!(block->flags & IS_FAULT) || error & FETCHING || !last)
        return 0;
    u64 at = last->address;
    /* Programs that share a page may have it at different addresses. */
    u64 compared = last->flags & IS_USER ? PAGE_OFFSET : ~0ull;
    for (u32 n = 0; n < last->n; at += last->sizes[n++])
        if (!((at ^ address) & compared)) {
            cpu->corrected += last->n - n;
            return last->n - n;
        }
    return 0;
}

static void interrupted(u32 index, const struct block *block, u64 mark)
{
    struct cpu *cpu = &cpus[index];
    u64 address = interrupted_at(block), not_executed = take_off(index, block, address);
    if (not_executed) {
        if (window) {
            const struct block *last = (const void *)cpu->counts->block;
            add_instructions(cpu->task, index, -not_executed);
            /* A program's function whose first instruction failed begins again. */
            if (last->flags & IS_USER && last->starts && not_executed == last->n)
                nodes[node_of(cpu->task, index)].calls--;
        }
        /* The last instruction left its mark before it failed, if it did. */
        mark = 0;
    }
    const struct symbol *at = address >> 47 ? symbol_at(address) : &user;
    arrive(index, mark, address, at, address == at->start);
    if (at->id == USER)
        cpu->task->depth = 0;
    push(cpu->task, block->func, at->id == USER ? ROOT : INTERRUPT, low48(address));
    count_call(cpu->task, index);
}

static void switched(u32 index)
{
    struct cpu *cpu = &cpus[index];
    has_switched = 1;
    if (!cpu->task->address) {
        /* The first task of a processor has run without a name. */
        u64 address = register_of(RDI);
        struct task *first = task_at(address);
        if (!first->depth) {
            struct frame *frames = first->frames;
            first->frames = cpu->task->frames;
            first->depth = cpu->task->depth;
            first->room = cpu->task->room;
            free(frames);
            cpu->task->frames = NULL;
            cpu->task->depth = cpu->task->room = 0;
        }
    }
    cpu->task = task_at(register_of(RSI));
    if (!cpu->task->depth && !flat)
        push(cpu->task, UNNAMED, STARTED, 0);
    if (window && cpu->task->named != window)
        read_name(cpu->task);
}

/* The begin of a function that says something. */
static void watched(u32 index, const struct block *block)
{
    struct cpu *cpu = &cpus[index];
    if (block->flags & IS_EVENT && window) {
        /* A task that has not run yet is known from now on. */
        if (block->flags & IS_SWITCH)
            task_at(register_of(RSI));
        record_event(index, block->func);
    }
    if (block->flags & IS_SWITCH) {
        switched(index);
        if (!flat)
            rename_top(cpu->task, block->func);
    } else if (block->flags & IS_OPEN) {
        opened(index, word_at(register_of(RDI) + SYSCALL_SECOND));
    } else if (block->flags & IS_MODULE) {
        add_module(register_of(RDI));
    } else if (block->flags & IS_NAME && register_of(RDI) == cpu->task->address) {
        cpu->task = named_anew(cpu->task, register_of(RSI));
    } else if (block->flags & IS_EXIT && window) {
        read_name(cpu->task);
    }
}

static void step(u32 index, void *data)
{
    const struct block *block = data;
    struct cpu *cpu = &cpus[index];
    u64 mark = cpu->counts->running;
    charge(index);
    if (MARKED(mark) == MARK_CLOCK)
        read_clock();
    struct symbol at = {0, block->func, block->flags};
    if (block->flags & IS_START && block->starts)
        cpu->task->depth = 0;
    if (block->flags & IS_ENTRY && block->starts)
        interrupted(index, block, mark);
    else
        arrive(index, mark, block->address, &at, block->starts);
    cpu->counts->running = block->func;
    if (block->starts && block->flags & IS_WATCHED)
        watched(index, block);
}

#include "callbacks.h"

#include "blocks.h"

static void started(u64 id, u32 index)
{
    if (index >= MOST_CPUS)
        return;
    if (index >= n_cpus)
        n_cpus = index + 1;
    cpus[index].counts = &counts[index];
    struct task *kept = kept_running[index];
    cpus[index].task = kept ? kept : new_task(0, -1 - (int)index);
    if (!index && !find_registers())
        qemu_plugin_outs("iolab: the processor lacks a register\n");
}

static void ended(u64 id, void *unused)
{
    if (keeps)
        write_kept();
    fclose(output);
    fclose(names);
}

/* Read what iolab wrote: one name and number a line. */
static _Bool read_settings(const char *path)
{
    static const struct {
        const char *name;
        u64 *value;
    } known[] = {
        {"task_struct.pid", &offsets.pid},
        {"task_struct.tgid", &offsets.tgid},
        {"task_struct.comm", &offsets.comm},
        {"module.name", &offsets.name},
        {"module.text", &offsets.text},
        {"module.text_size", &offsets.text_size},
        {"module.kallsyms", &offsets.kallsyms},
        {"mod_kallsyms.symtab", &offsets.symtab},
        {"mod_kallsyms.num_symtab", &offsets.n_symtab},
        {"mod_kallsyms.strtab", &offsets.strtab},
        {"most_events", &most_events},
        {"flat", &flat},
        {"keeps", &keeps},
    };
    char line[256], name[64];
    void *file = fopen(path, "r");
    u64 value;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %llu", name, &value) != 2)
            continue;
        for (u32 n = 0; n < sizeof known / sizeof *known; n++)
            if (!strcmp(name, known[n].name))
                *known[n].value = value;
        if (!strcmp(name, "cell") && value < 4096)
            wanted[value / 64] |= 1ull << (value % 64);
    }
    return file && !fclose(file);
}

/* Its one argument, folder=PATH, is where it reads `settings` and `symbols`, and writes. */
int EXPORT qemu_plugin_install(u64 id, const struct info *info, int argc, char **argv)
{
    char path[4096];
    if (info->version.min > API_VERSION || info->version.cur < API_VERSION || argc != 1 ||
        strncmp(argv[0], "folder=", 7) || info->system.max_vcpus > MOST_CPUS)
        return 1;
    if (info->system.max_vcpus > 1 && !TELLS_CPU)
        return 1;
    const char *folder = argv[0] + 7;
    snprintf(path, sizeof path, "%s/settings", folder);
    if (!read_settings(path))
        return 1;
    snprintf(path, sizeof path, "%s/symbols", folder);
    if (!read_symbols(path))
        return 1;
    snprintf(path, sizeof path, "%s/programs", folder);
    if (!read_programs(path))
        return 1;
    snprintf(path, sizeof path, "%s/modules.txt", folder);
    names = fopen(path, "a");
    snprintf(path, sizeof path, "%s/windows", folder);
    output = fopen(path, "wb");
    events = calloc(most_events + 1, sizeof *events);
    tasks = calloc(MOST_TASKS, sizeof *tasks);
    buffer = g_byte_array_new();
    snprintf(kept_path, sizeof kept_path, "%s/kept", folder);
    if (!tasks || !read_kept())
        return 1;
    score = qemu_plugin_scoreboard_new(1);
    counts = low_memory(MOST_CPUS * sizeof *counts);
    if (!names || !output || !events || !tasks || !counts || (flat && !make_tallies()))
        return 1;
    qemu_plugin_register_vcpu_init_cb(id, started);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
