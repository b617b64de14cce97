/* fleet_file.h - tombolo-fleet FILE: the command line of fleet_world.h. */
#ifndef TB_SIM_FLEET_FILE_H
#define TB_SIM_FLEET_FILE_H

/* argv[1] is the file. The exit code. */
int tb_fleet_file_main(int argc, char **argv);

#endif
