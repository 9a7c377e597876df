/* SPDX-License-Identifier: MIT
 *
 * The functions of the kernel by address. The kernel's own come from a file that iolab wrote; those
 * of a module are read from the guest's memory when the kernel is about to run its init function.
 */

/* What a function is besides its name; iolab.observer.symbols has the same numbers. */
enum {
    IS_ENTRY = 1,      /* of an interrupt or exception */
    HAS_ERROR = 2,     /* an exception that pushes an error code */
    IS_FAULT = 4,      /* an exception after which the instruction is executed again */
    IS_SWITCH = 8,     /* __switch_to(prev, next) */
    IS_OPEN = 16,      /* __x64_sys_openat(regs) */
    IS_MODULE = 32,    /* do_init_module(module) */
    IS_EXIT = 64,      /* do_exit(code) */
    IS_DEVICE = 128,   /* reads or writes a device's registers */
    IS_EVENT = 256,    /* its calls are recorded one by one */
    IS_STUBS = 512,    /* many entries side by side under one name */
    IS_START = 1024,   /* where a processor's first stack begins */
    IS_NAME = 2048,    /* __set_task_comm(task, name, exec) */
    IS_WATCHED = IS_SWITCH | IS_OPEN | IS_MODULE | IS_EXIT | IS_EVENT | IS_NAME,
};

/* Numbers of functions that have no symbol. */
enum { USER = 1, UNNAMED = 2, BROKEN = 3, FIRST_SYMBOL = 16 };

struct symbol {
    u64 start;
    u32 id;
    u32 flags;
};

struct text {
    u64 from, to;
    struct symbol *symbols;
    u32 n;
};

static struct text texts[512];
static u32 n_texts;
static u32 next_id;
static const struct symbol unnamed = {0, UNNAMED, 0};

static const struct symbol *symbol_at(u64 address)
{
    for (u32 t = 0; t < n_texts; t++) {
        struct text *text = &texts[t];
        if (address < text->from || address >= text->to)
            continue;
        u32 low = 0, high = text->n;
        while (low < high) {
            u32 middle = (low + high) / 2;
            if (text->symbols[middle].start <= address)
                low = middle + 1;
            else
                high = middle;
        }
        return low && text->symbols[low - 1].id ? &text->symbols[low - 1] : &unnamed;
    }
    return &unnamed;
}

static int by_start(const void *first, const void *second)
{
    const struct symbol *a = first, *b = second;
    return a->start < b->start ? -1 : a->start > b->start ? 1 : (int)a->id - (int)b->id;
}

static _Bool add_text(u64 from, u64 to, struct symbol *symbols, u32 n)
{
    if (n_texts == sizeof texts / sizeof *texts)
        return 0;
    /* A module that was unloaded may have left its range to this one. */
    for (u32 t = 1; t < n_texts; t++)
        if (texts[t].from < to && from < texts[t].to)
            texts[t].from = texts[t].to = 0;
    texts[n_texts++] = (struct text){from, to, symbols, n};
    return 1;
}

static _Bool read_symbols(const char *path)
{
    u64 head[4];
    void *file = fopen(path, "rb");
    if (!file)
        return 0;
    _Bool good = fread(head, sizeof head, 1, file) == 1;
    struct symbol *symbols = good ? calloc(head[0], sizeof *symbols) : NULL;
    good = symbols && fread(symbols, sizeof *symbols, head[0], file) == head[0];
    fclose(file);
    next_id = (u32)head[3];
    return good && add_text(head[1], head[2], symbols, (u32)head[0]);
}
