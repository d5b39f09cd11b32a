from tests.own_folder import own_folder as own_folder
