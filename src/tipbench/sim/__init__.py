"""A made-up world in which policies can be compared, and the gate that a challenger must win there.

world       what a world is; `world_file` reads one from the file that a person wrote
scenery     what the serving half makes of that world's tips and tasks, worked out once
draws       everything that chance decides, drawn beforehand, so that all policies meet the same
histories   what a service would have counted about every user, many users side by side
runner      a policy in that world, with the very code that serves; `over_http` asks a live service instead
trace       what came of it
gate        what must be shown before a challenger is promoted, and the controls that can void it
ope         what the logged decisions say about a policy that did not make them

All of it is arithmetic on what is handed in, but for `world_file`, which reads, and `over_http`, which asks.
"""
