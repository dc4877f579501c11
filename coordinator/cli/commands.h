/* One function a command: argv[0] is the verb; returns the exit status (0, 1: an error that was
 * told in one line, 2: usage, 128 + signal). */
#pragma once

int cmd_run(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_synth(int argc, char **argv);
